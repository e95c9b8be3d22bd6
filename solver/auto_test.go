package solver

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSolveAuto(t *testing.T) {
	p := twoDevices()
	plan, curve, err := SolveAuto(p, 100)
	if err != nil {
		t.Fatal(err)
	}
	var grid []int
	best := 0.0
	for _, point := range curve {
		grid = append(grid, point.GlobalBatch)
		best = max(best, point.SamplesPerSecond)
	}
	if want := []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 100}; !slices.Equal(grid, want) {
		t.Errorf("grid %v, want %v", grid, want)
	}
	if got := plan.Predicted.SamplesPerSecond; got < 0.99*best {
		t.Errorf("batch %d gives %v samples/s, the best %v", plan.GlobalBatch, got, best)
	}
	if err := checkPlan(Problem{GlobalBatch: plan.GlobalBatch, Units: p.Units, Devices: p.Devices, Collectives: p.Collectives,
		RaggedFactor: p.RaggedFactor, StateBytesPerParameter: p.StateBytesPerParameter, FixedMs: p.FixedMs}, plan); err != nil {
		t.Error(err)
	}
}

func TestSolveAutoEndsWithTheMemory(t *testing.T) {
	p := twoDevices()
	for i := range p.Devices {
		c := p.Devices[i].Costs["block"]
		c.KeptBytesPerSample = map[Policy]float64{Recompute: 50}
		p.Devices[i].Costs["block"] = c
	}
	plan, curve, err := SolveAuto(p, 64)
	if err != nil {
		t.Fatal(err)
	}
	if plan.GlobalBatch != 6 || curve[len(curve)-1].IterationMs != 0 {
		t.Errorf("batch %d, curve %+v", plan.GlobalBatch, curve)
	}
}

func TestSolveAutoFaults(t *testing.T) {
	p := twoDevices()
	p.FixedBatches = []int{3, 3}
	if _, _, err := SolveAuto(p, 8); err == nil || !strings.Contains(err.Error(), "set by hand") {
		t.Errorf("got %v", err)
	}
	p = twoDevices()
	setUsable(&p, 10)
	if _, curve, err := SolveAuto(p, 8); !errors.As(err, new(*InfeasibleError)) || len(curve) != 6 {
		t.Errorf("got %v with a curve of %d points", err, len(curve))
	}
}

func setUsable(p *Problem, bytes int64) {
	for i := range p.Devices {
		p.Devices[i].UsableMemoryBytes = bytes
	}
}
