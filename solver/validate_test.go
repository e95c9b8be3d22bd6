package solver

import (
	"math"
	"strings"
	"testing"
)

// twoDevices is a problem that can be checked by hand (docs/planner.md): the
// second device takes twice as long for everything.
func twoDevices() Problem {
	device := func(rank int, slow float64) Device {
		return Device{Rank: rank, Name: []string{"fast", "slow"}[rank], UUID: []string{"GPU-f", "GPU-s"}[rank],
			UsableMemoryBytes: 1000, ReservedBytes: 100,
			Costs: map[string]ClassCost{"block": {
				ForwardMs:   Cost{Tail: Line{Slope: slow}},
				BackwardMs:  Cost{Tail: Line{Slope: 2 * slow}},
				MemoryBytes: Cost{Tail: Line{Slope: 50, Intercept: 50}},
			}}}
	}
	return Problem{
		GlobalBatch: 6, RaggedFactor: 1.5, StateBytesPerParameter: 16, FixedMs: 2,
		Units:       []UnitClass{{Class: "block", Count: 2, Parameters: 30, TrainableParameters: 30}},
		Devices:     []Device{device(0, 1), device(1, 2)},
		Collectives: map[string]Collective{"block": {AllGatherMs: 3, ReduceScatterMs: 1}},
	}
}

func TestProblemFaults(t *testing.T) {
	cost := func(p *Problem, change func(*ClassCost)) {
		c := p.Devices[1].Costs["block"]
		change(&c)
		p.Devices[1].Costs = map[string]ClassCost{"block": c}
	}
	tests := map[string]struct {
		change func(*Problem)
		want   string
	}{
		"no batch":           {func(p *Problem) { p.GlobalBatch = 0 }, "global_batch: want 1 to 131072, got 0"},
		"no devices":         {func(p *Problem) { p.Devices = nil }, "devices: want 1 to 16384, got 0"},
		"no units":           {func(p *Problem) { p.Units = nil }, "units: want 1 to 16 classes, got 0"},
		"duplicate rank":     {func(p *Problem) { p.Devices[1].Rank = 0 }, "devices[1].rank: want 1, got 0"},
		"duplicate class":    {func(p *Problem) { p.Units = append(p.Units, p.Units[0]) }, `units[1].class: "block" is there twice`},
		"nothing to train":   {func(p *Problem) { p.Units[0].TrainableParameters = 0 }, "nothing to train"},
		"too many trainable": {func(p *Problem) { p.Units[0].TrainableParameters = 31 }, "units[0].trainable_parameters: want 0 to the 30 parameters, got 31"},
		"not a number":       {func(p *Problem) { p.FixedMs = math.NaN() }, "fixed_ms: want 0 to 1e+12, got NaN"},
		"absurd factor":      {func(p *Problem) { p.RaggedFactor = 1e30 }, "ragged_factor: want 0 to 1e+06, got 1e+30"},
		"negative memory":    {func(p *Problem) { p.Devices[0].UsableMemoryBytes = -1 }, "devices[0].usable_memory_bytes: want 0 to 1e+16, got -1"},
		"class without cost": {func(p *Problem) { p.Devices[1].Costs = nil }, "devices[1].costs.block: missing"},
		"points fall back": {func(p *Problem) {
			cost(p, func(c *ClassCost) { c.ForwardMs.Points = [][2]float64{{2, 1}, {1, 1}} })
		}, "devices[1].costs.block.forward_ms.points[1]: want whole samples in ascending order"},
		"half a sample": {func(p *Problem) {
			cost(p, func(c *ClassCost) { c.BackwardMs.Points = [][2]float64{{1.5, 1}} })
		}, "devices[1].costs.block.backward_ms.points[0]: want whole samples"},
		"negative bytes": {func(p *Problem) {
			cost(p, func(c *ClassCost) { c.MemoryBytes.Points = [][2]float64{{1, -5}} })
		}, "devices[1].costs.block.memory_bytes.points[0]: want 0 to 1e+16, got -5"},
		"endless tail": {func(p *Problem) {
			cost(p, func(c *ClassCost) { c.MemoryBytes.Tail.Slope = math.Inf(1) })
		}, "devices[1].costs.block.memory_bytes.tail: want finite numbers"},
		"kept bytes":       {func(p *Problem) { cost(p, func(c *ClassCost) { c.KeptBytesPerSample = map[Policy]float64{Keep: -1} }) }, "kept_bytes_per_sample.keep: want 0"},
		"unknown policy":   {func(p *Problem) { p.Policies = []Policy{"drop"} }, "policies[0]: want"},
		"unknown shares":   {func(p *Problem) { p.Shares = "odd" }, "shares: want"},
		"too few batches":  {func(p *Problem) { p.FixedBatches = []int{6} }, "fixed_batches: want one for each of 2 devices, got 1"},
		"wrong sum":        {func(p *Problem) { p.FixedBatches = []int{6, 1} }, "fixed_batches: [6 1] sum to 7, want global_batch 6"},
		"batch below zero": {func(p *Problem) { p.FixedBatches = []int{7, -1} }, "fixed_batches[1]: want 0 to 131072, got -1"},
		"unused by hand":   {func(p *Problem) { p.FixedBatches = []int{6, 0}; p.UseAll = true }, "fixed_batches: a rank has 0 samples"},
		"collective":       {func(p *Problem) { p.Collectives = map[string]Collective{"block": {-1, 0}} }, "collectives.block.all_gather_ms: want 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := twoDevices()
			tt.change(&p)
			if _, err := Solve(p); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
