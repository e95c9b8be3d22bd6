package profiler

import (
	"testing"
)

func TestCorrected(t *testing.T) {
	line := Cost{Points: [][2]float64{{1, 2}, {2, 4}}, Tail: Tail{Slope: 2, Intercept: 1}}
	p := Profile{
		FixedMs: 10, MicrobatchOverheadMs: Overhead{Forward: 1, Backward: 2},
		Collectives: map[string]Collective{"b": {AllGatherMs: 3, ReduceScatterMs: 5}},
		Devices: []ProfileDevice{
			{UUID: "x", ReservedBytes: 100, Costs: map[string]UnitCosts{"b": {ForwardMs: line, BackwardMs: line, MemoryBytes: line}}},
			{UUID: "y", ReservedBytes: 100},
		},
	}
	got := p.Corrected(Correction{TimeRatio: 1.5, MemoryBytes: map[string]int64{"x": 7}})
	costs := got.Devices[0].Costs["b"]
	if got.FixedMs != 15 || got.MicrobatchOverheadMs.Backward != 3 || got.Collectives["b"].ReduceScatterMs != 7.5 ||
		costs.ForwardMs.At(2) != 6 || costs.BackwardMs.At(4) != 13.5 || costs.MemoryBytes.At(2) != 4 {
		t.Errorf("got %+v", got)
	}
	if got.Devices[0].ReservedBytes != 107 || got.Devices[1].ReservedBytes != 100 {
		t.Errorf("reserved %d and %d", got.Devices[0].ReservedBytes, got.Devices[1].ReservedBytes)
	}
	if before := p.Devices[0].Costs["b"].ForwardMs.At(2); before != 4 || p.Collectives["b"].AllGatherMs != 3 {
		t.Error("the profile itself was changed")
	}
}
