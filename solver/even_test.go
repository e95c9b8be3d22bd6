package solver

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestEven(t *testing.T) {
	p := twoDevices()
	plan, err := Even(p)
	if err != nil {
		t.Fatal(err)
	}
	// forward max(3, 3, 6), backward max(4, 9, 18), two units, + 6
	if plan.Predicted.IterationMs != 54 || !slices.Equal(batchesOf(plan), []int{3, 3}) || plan.Strategy != StrategyEven {
		t.Errorf("got %v ms with %v as %q", plan.Predicted.IterationMs, batchesOf(plan), plan.Strategy)
	}
	if err := checkPlan(p, plan); err != nil {
		t.Error(err)
	}
	if a := plan.Alternatives; len(a) != 1 || a[0].Strategy != StrategyEvenOrdinary || a[0].IterationMs != 54 {
		t.Errorf("alternatives %+v", a)
	}
}

func TestEvenOrdinaryPaysForEveryMicrobatch(t *testing.T) {
	p := twoDevices()
	for i := range p.Devices {
		p.Devices[i].UsableMemoryBytes = 700 // 120 bytes for computing: one sample at a time
	}
	layered, err := Even(p)
	if err != nil {
		t.Fatal(err)
	}
	ordinary, err := EvenOrdinary(p)
	if err != nil {
		t.Fatal(err)
	}
	// per lap forward max(3, 2), backward max(4, 6): 3 laps * 2 units * 9 + 6
	if layered.Predicted.IterationMs != 54 || ordinary.Predicted.IterationMs != 60 {
		t.Errorf("layered %v ms, ordinary %v ms, want 54 and 60", layered.Predicted.IterationMs, ordinary.Predicted.IterationMs)
	}
	if !slices.Equal(ordinary.Ranks[0].MicroBatches, []int{1, 1, 1}) {
		t.Errorf("microbatches %v", ordinary.Ranks[0].MicroBatches)
	}
	best, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if a := best.Alternatives; len(a) != 2 || a[0].IterationMs != 54 || a[1].IterationMs != 60 || !strings.Contains(a[1].Reason, "each of the 3 microbatches") {
		t.Errorf("alternatives %+v", a)
	}
}

func TestEvenThatDoesNotFit(t *testing.T) {
	p := twoDevices()
	p.Devices[1].UsableMemoryBytes = 450
	_, err := Even(p)
	var none *InfeasibleError
	if !errors.As(err, &none) || none.Rank != 1 || none.MissingBytes != 100+100+480-450 {
		t.Fatalf("got %v, want device 1 to lack 230 bytes", err)
	}
	plan, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if a := plan.Alternatives[0]; a.IterationMs != 0 || !strings.Contains(a.Reason, "device 1 (slow) lacks 230 bytes") {
		t.Errorf("alternative %+v", a)
	}
}

func TestEvenUnequalRemainder(t *testing.T) {
	p := twoDevices()
	p.GlobalBatch = 1
	plan, err := Even(p)
	if err != nil || !slices.Equal(batchesOf(plan), []int{1, 0}) {
		t.Errorf("got %v, %v", batchesOf(plan), err)
	}
}

func TestBalancedSizes(t *testing.T) {
	tests := map[int][]int{1: {1}, 2: {2, 1}, 8: {8, 4, 3, 2, 1}, 9: {9, 5, 3, 2, 1}}
	for n, want := range tests {
		if got := balancedSizes(n); !slices.Equal(got, want) {
			t.Errorf("%d: got %v, want %v", n, got, want)
		}
	}
}
