package solver

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestEvaluateByHand checks predictions that are worked out in the comments.
func TestEvaluateByHand(t *testing.T) {
	rank := func(batch, ppm int, policy Policy, micro ...int) RankAllocation {
		return RankAllocation{Batch: batch, MicroBatches: micro, StatePPM: ppm, Activations: policy}
	}
	tests := map[string]struct {
		change func(*Problem)
		a      Allocation
		want   float64
	}{
		// forward max(3, 4, 4) = 4, backward max(4, 12, 12) = 12, two units: 32,
		// first gather 3, last reduction 1, fixed 2
		"even shares": {nil, Allocation{EvenShares, false, []RankAllocation{rank(4, 5e5, Recompute, 4), rank(2, 5e5, Recompute, 2)}}, 38},
		// collectives 4.5 and 1.5: forward 4.5, backward 12, two units: 33, + 6 + 2
		"ragged shares": {nil, Allocation{RaggedShares, false, []RankAllocation{rank(4, 6e5, Recompute, 4), rank(2, 4e5, Recompute, 2)}}, 41},
		// backward 8 on the fast device, 12 on the slow one
		"keep on the fast device": {nil, Allocation{EvenShares, false, []RankAllocation{rank(4, 5e5, Keep, 4), rank(2, 5e5, Recompute, 2)}}, 38},
		// backward 8 on both
		"keep on both": {nil, Allocation{EvenShares, false, []RankAllocation{rank(4, 5e5, Keep, 4), rank(2, 5e5, Keep, 2)}}, 30},
		// the fast device runs 2, 1, 1: forward 4 + 2*0.5, backward 12 + 2*1
		"overhead of microbatches": {func(p *Problem) { p.MicrobatchOverheadMs = Overhead{0.5, 1} },
			Allocation{EvenShares, false, []RankAllocation{rank(4, 5e5, Recompute, 2, 1, 1), rank(2, 5e5, Recompute, 2)}}, 44},
		// two laps of (2, 1): forward max(3, 2, 2) = 3, backward max(4, 6, 6) = 6:
		// 2 laps * 2 units * 9 = 36, + 6
		"ordinary accumulation": {nil, Allocation{EvenShares, true, []RankAllocation{rank(4, 5e5, Recompute, 2, 2), rank(2, 5e5, Recompute, 1, 1)}}, 42},
		// laps (3, 2) and (1): forward 4 and 3, backward 12 and 4: 2*(16+7) + 6
		"ordinary accumulation, unequal laps": {nil, Allocation{EvenShares, true, []RankAllocation{rank(4, 5e5, Recompute, 3, 1), rank(2, 5e5, Recompute, 2)}}, 52},
		// whole-batch units do not recompute: backward max(4, 8, 8)
		"whole batch": {func(p *Problem) { p.Units[0].WholeBatch = true },
			Allocation{EvenShares, false, []RankAllocation{rank(4, 5e5, Recompute, 1, 1, 1, 1), rank(2, 5e5, Recompute, 2)}}, 30},
		// moving 4 samples takes 20 each way: 2*(20+20) + 6
		"offload over a slow link": {func(p *Problem) {
			c := p.Devices[0].Costs["block"]
			c.OffloadMsPerSample = 5
			p.Devices[0].Costs["block"] = c
		}, Allocation{EvenShares, false, []RankAllocation{rank(4, 5e5, Offload, 4), rank(2, 5e5, Recompute, 2)}}, 86},
		// the slow device only stores: forward 6, backward 18
		"batch 0": {nil, Allocation{EvenShares, false, []RankAllocation{rank(6, 5e5, Recompute, 3, 3), rank(0, 5e5, Recompute)}}, 54},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := twoDevices()
			if tt.change != nil {
				tt.change(&p)
			}
			got, err := Evaluate(p, tt.a)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got.IterationMs-tt.want) > 1e-9 {
				t.Errorf("iteration %v ms, want %v", got.IterationMs, tt.want)
			}
			if want := 6000 / tt.want; math.Abs(got.SamplesPerSecond-want) > 1e-9 {
				t.Errorf("%v samples/s, want %v", got.SamplesPerSecond, want)
			}
		})
	}
}

func TestEvaluateMemory(t *testing.T) {
	p := twoDevices()
	c := p.Devices[0].Costs["block"]
	c.KeptBytesPerSample = map[Policy]float64{Keep: 10, Recompute: 1}
	p.Devices[0].Costs["block"] = c
	a := Allocation{EvenShares, false, []RankAllocation{{Batch: 4, MicroBatches: []int{3, 1}, StatePPM: 5e5, Activations: Keep}, {Batch: 2, MicroBatches: []int{2}, StatePPM: 5e5, Activations: Recompute}}}
	got, err := Evaluate(p, a)
	if err != nil {
		t.Fatal(err)
	}
	// 100 reserved, 50+3*50 computing, of which 3*9 are kept, 2 units * 4 samples * 10 kept, half of 960
	if m := got.Ranks[0].MemoryBytes(); m != 100+200-27+80+480 {
		t.Errorf("memory %d, want 833", m)
	}
	if h := got.Ranks[0].HeadroomBytes(); h != 167 {
		t.Errorf("headroom %d, want 167", h)
	}
	p.Devices[0].UsableMemoryBytes = 823
	got, err = Evaluate(p, a)
	var none *InfeasibleError
	if !errors.As(err, &none) || none.MissingBytes != 10 || none.Rank != 0 {
		t.Fatalf("got %v, want device 0 to lack 10 bytes", err)
	}
	if got.IterationMs == 0 {
		t.Error("no prediction beside the error")
	}
}

func TestEvaluateHostMemory(t *testing.T) {
	p := twoDevices()
	c := p.Devices[0].Costs["block"]
	c.KeptBytesPerSample = map[Policy]float64{Recompute: 10, Offload: 1}
	p.Devices[0].Costs["block"], p.Devices[0].HostMemoryBytes = c, 70
	a := Allocation{EvenShares, false, []RankAllocation{{Batch: 4, MicroBatches: []int{4}, StatePPM: 5e5, Activations: Offload}, {Batch: 2, MicroBatches: []int{2}, StatePPM: 5e5, Activations: Recompute}}}
	_, err := Evaluate(p, a) // 2 units * 4 samples * 9 bytes are 72
	if err == nil || !strings.Contains(err.Error(), "lacks 2 bytes") || !strings.Contains(err.Error(), "host memory") {
		t.Errorf("got %v, want 2 bytes of host memory to lack", err)
	}
}

func TestEvaluateFaults(t *testing.T) {
	a := Allocation{"", false, []RankAllocation{{Batch: 4, MicroBatches: []int{3}, StatePPM: 5e5, Activations: Keep}}}
	_, err := Evaluate(twoDevices(), a)
	for _, want := range []string{"shares: want", "ranks: want one for each of the 2 devices, got 1", "ranks[0].micro_batches: sum to 3, want batch 4", "state_ppm sum to 500000"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCostAt(t *testing.T) {
	c := Cost{Points: [][2]float64{{2, 10}, {4, 30}}, Tail: Line{5, 12}}
	tests := map[string]struct {
		c    Cost
		m    int
		want float64
	}{
		"none":               {c, 0, 0},
		"below the points":   {c, 1, 10},
		"a point":            {c, 2, 10},
		"between":            {c, 3, 20},
		"last point":         {c, 4, 30},
		"tail":               {c, 5, 37},
		"only a tail":        {Cost{Tail: Line{2, 1}}, 3, 7},
		"never negative":     {Cost{Tail: Line{1, -9}}, 3, 0},
		"a point at 0":       {Cost{Points: [][2]float64{{0, 4}, {2, 8}}}, 0, 4},
		"after a point at 0": {Cost{Points: [][2]float64{{0, 4}, {2, 8}}}, 1, 6},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.c.At(tt.m); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestKeptActivationsAreCountedOnce(t *testing.T) {
	c := ClassCost{
		MemoryBytes:        Cost{Points: [][2]float64{{1, 150}, {2, 230}}, Tail: Line{Slope: 80, Intercept: 70}},
		KeptBytesPerSample: map[Policy]float64{Keep: 50, Recompute: 10},
	}
	kept := c.withoutKept()
	for m, want := range map[int]float64{1: 110, 2: 150, 4: 390 - 160} {
		if got := kept.At(m); got != want {
			t.Errorf("%d samples: %v bytes, want %v", m, got, want)
		}
	}
	c.KeptBytesPerSample[Keep] = 1000
	if kept = c.withoutKept(); kept.At(9) < kept.At(3) || kept.At(1) != 0 {
		t.Errorf("never below nothing, never falling beyond the points: %+v", kept)
	}
}

// With a loss of a quarter, a pass takes the longer of computing and collectives, and a
// quarter of the shorter one.
func TestOverlapLosesTime(t *testing.T) {
	for _, c := range []struct{ loss, ms float64 }{{0, 10 + 30}, {0.25, 10 + 0.25*6 + 30 + 0.25*20}, {1, 10 + 6 + 30 + 20}} {
		cost := func(ms float64) Cost { return Cost{Tail: Line{Intercept: ms}} }
		p := Problem{
			GlobalBatch: 1, StateBytesPerParameter: 16,
			Units: []UnitClass{{Class: "block", Count: 1, Parameters: 1, TrainableParameters: 1, OverlapLoss: c.loss}},
			Devices: []Device{{UsableMemoryBytes: 1 << 20, Costs: map[string]ClassCost{
				"block": {ForwardMs: cost(6), BackwardMs: cost(24)}}}},
			Collectives: map[string]Collective{"block": {AllGatherMs: 10, ReduceScatterMs: 10}},
		}
		plan, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		// Recomputed, the backward takes 30; the first gather and the last reduction come on top.
		if got := plan.Predicted.IterationMs - 20; math.Abs(got-c.ms) > 1e-9 {
			t.Errorf("loss %v: %v ms, want %v", c.loss, got, c.ms)
		}
	}
}

// Ragged shares make the collectives longer, so more of them runs beside computing.
func TestOverlapLosesTimeOfRaggedCollectives(t *testing.T) {
	cost := func(ms float64) Cost { return Cost{Tail: Line{Intercept: ms}} }
	p := Problem{
		GlobalBatch: 1, RaggedFactor: 2, StateBytesPerParameter: 16, Shares: RaggedShares,
		Units: []UnitClass{{Class: "block", Count: 1, Parameters: 1, TrainableParameters: 1, OverlapLoss: 0.25}},
		Devices: []Device{{UsableMemoryBytes: 1 << 20, Costs: map[string]ClassCost{
			"block": {ForwardMs: cost(16), BackwardMs: cost(34)}}}},
		Collectives: map[string]Collective{"block": {AllGatherMs: 10, ReduceScatterMs: 10}},
	}
	plan, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	// 20 beside 16, then 40 beside 16+34; the first gather and the last reduction.
	if got, want := plan.Predicted.IterationMs, 20+0.25*16+50+0.25*40+40; math.Abs(got-want) > 1e-9 {
		t.Errorf("%v ms, want %v", got, want)
	}
}

func TestHeldUnitsAreGatheredOnce(t *testing.T) {
	p := twoDevices()
	p.Units[0].Held = true
	a := Allocation{EvenShares, false, []RankAllocation{{Batch: 4, MicroBatches: []int{4}, StatePPM: 5e5, Activations: Recompute}, {Batch: 2, MicroBatches: []int{2}, StatePPM: 5e5, Activations: Recompute}}}
	got, err := Evaluate(p, a)
	if err != nil {
		t.Fatal(err)
	}
	c := p.Collectives["block"]
	p.Units[0].Held = false
	p.Collectives["block"] = Collective{}
	free, err := Evaluate(p, a)
	if err != nil {
		t.Fatal(err)
	}
	a.Ordinary = true
	a.Ranks[0].MicroBatches, a.Ranks[1].MicroBatches = []int{2, 2}, []int{1, 1}
	twice, err := Evaluate(p, a)
	if err != nil {
		t.Fatal(err)
	}
	p.Units[0].Held, p.Collectives["block"] = true, c
	if held, err := Evaluate(p, a); err != nil || math.Abs(held.IterationMs-twice.IterationMs-4*(c.AllGatherMs+c.ReduceScatterMs)) > 1e-9 {
		t.Errorf("two ordinary microbatches: %v ms (%v), want %v and the collectives of each", held.IterationMs, err, twice.IterationMs)
	}
	if want := free.IterationMs + 2*(c.AllGatherMs+c.ReduceScatterMs); math.Abs(got.IterationMs-want) > 1e-9 {
		t.Errorf("iteration %v ms, want %v: two units, each gathered and reduced once", got.IterationMs, want)
	}
}
