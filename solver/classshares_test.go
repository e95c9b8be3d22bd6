package solver

import (
	"reflect"
	"testing"
)

// TestSharesOfEachClass: the small device cannot hold half of the blocks. The
// collectives of the head take longer than it computes, so its shares stay even.
func TestSharesOfEachClass(t *testing.T) {
	p := twoDevices()
	p.Units = append(p.Units, UnitClass{Class: "head", Count: 1, Parameters: 3, TrainableParameters: 3, Inside: []string{"Tied"}})
	p.Collectives["head"] = Collective{AllGatherMs: 100, ReduceScatterMs: 20}
	p.Devices[1].UsableMemoryBytes = 450
	for i := range p.Devices {
		p.Devices[i].Costs["head"] = p.Devices[i].Costs["block"]
	}
	plan, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	// blocks 2*(4.5+12), the head 100+120, first gather and last reduction of a block 4.5+1.5, fixed 2
	if plan.Predicted.IterationMs != 261 || plan.Shares != RaggedShares {
		t.Errorf("%v ms with %s shares, want 261 with ragged ones", plan.Predicted.IterationMs, plan.Shares)
	}
	for i, r := range plan.Ranks {
		if want := map[string]int{"head": 500_000, "Tied": 500_000}; !reflect.DeepEqual(r.ClassStatePPM, want) {
			t.Errorf("rank %d: class shares %v, want %v", i, r.ClassStatePPM, want)
		}
	}
	// 450 usable less 100 reserved, 100 to compute one sample, and half of the head's 48 bytes
	if ppm := plan.Ranks[1].StatePPM; ppm == 0 || ppm > 226*1_000_000/960 {
		t.Errorf("rank 1 holds %d millionths of the blocks, want some, and no more than its 226 bytes", ppm)
	}
	if err := checkPlan(p, plan); err != nil {
		t.Error(err)
	}
}

// TestClassSharesAreChecked: shares of a class that are not whole are refused,
// and shares that a hand made even cost what even ones do.
func TestClassSharesAreChecked(t *testing.T) {
	p := twoDevices()
	a := Allocation{Shares: RaggedShares, Ranks: []RankAllocation{
		{Batch: 4, MicroBatches: []int{4}, StatePPM: 600_000, Activations: Recompute, ClassStatePPM: map[string]int{"block": 500_000}},
		{Batch: 2, MicroBatches: []int{2}, StatePPM: 400_000, Activations: Recompute, ClassStatePPM: map[string]int{"block": 500_000}},
	}}
	got, err := Evaluate(p, a)
	if err != nil || got.IterationMs != 38 || got.Ranks[0].StateBytes != 480 {
		t.Errorf("got %v ms and %d bytes, %v; want 38 and 480", got.IterationMs, got.Ranks[0].StateBytes, err)
	}
	a.Ranks[1].ClassStatePPM = map[string]int{"block": 500_001}
	if _, err := Evaluate(p, a); err == nil {
		t.Error("shares of 1000001 millionths were taken")
	}
	a.Ranks[1].ClassStatePPM = nil
	if _, err := Evaluate(p, a); err == nil {
		t.Error("a class that only one rank names was taken")
	}
}
