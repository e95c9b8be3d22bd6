package solver

import (
	"math"
	"strings"
	"testing"
)

// What is said of a rank is held against what the iteration would take if it alone had one
// sample more: only the slowest are limited by computing.
func TestLimitsAreTrue(t *testing.T) {
	p := twoDevices()
	p.FixedBatches = []int{5, 1} // 15 ms a unit on the fast device, 8 ms on the slow one
	_, e := explain(t, p)
	if want := "no device is slower in the backward of block, which takes 30.0 of 46.0 ms"; e.Ranks[0].Limit != LimitCompute || e.Ranks[0].Why != want {
		t.Errorf("fast: %s, %s", e.Ranks[0].Limit, e.Ranks[0].Why)
	}
	if e.Ranks[1].Limit != LimitNone {
		t.Errorf("slow, with time for another: %s, %s", e.Ranks[1].Limit, e.Ranks[1].Why)
	}
	p.FixedBatches = []int{4, 2}
	p.GlobalBatch = 6
	fast := p.Devices[0].Costs["block"]
	fast.ForwardMs, fast.BackwardMs = Cost{Tail: Line{Slope: 0.75}}, Cost{Tail: Line{Slope: 1.5}}
	p.Devices[0].Costs["block"] = fast // 3 and 9 ms a unit, and 11.25 with one sample more
	p.FixedBatches = []int{5, 1}       // 2 and 6 on the slow one: with two it takes 4 and 12
	_, e = explain(t, p)
	// 2*(3.75 + 11.25) + 6 now, 2*(4 + 12) + 6 then
	if want := "one sample more would make it the slowest, and the step 38.0 ms in place of 36.0 ms"; e.Ranks[1].Limit != LimitSamples || e.Ranks[1].Why != want {
		t.Errorf("slow: %s, %s", e.Ranks[1].Limit, e.Ranks[1].Why)
	}
}

// Where the collectives bind the longest step, no rank is said to be limited by computing
// for a step that hardly counts.
func TestLinkLimitsEveryRank(t *testing.T) {
	p := twoDevices()
	p.Collectives = map[string]Collective{"block": {AllGatherMs: 1, ReduceScatterMs: 500}}
	_, e := explain(t, p) // the forward takes 4 ms on both, of a second
	for _, r := range e.Ranks {
		if want := "in the backward of block, which takes 1.00 of 1.51 s, the collectives take longer than any device computes"; r.Limit != LimitLink || r.Why != want {
			t.Errorf("rank %d: %s, %s", r.Rank, r.Limit, r.Why)
		}
	}
	if !strings.HasPrefix(e.Bottleneck, "link: ") {
		t.Error(e.Bottleneck)
	}
}

// A rank whose script is shown a sample does not only store state.
func TestUnusedSaysWhatIsShown(t *testing.T) {
	p := twoDevices()
	p.ShownOne, p.FixedBatches = true, []int{6, 0}
	_, e := explain(t, p)
	want := "device 1 (slow) has no samples of the step; its script is shown one that weighs nothing and takes 16.0 ms: its batch is 0 by hand"
	if len(e.Unused) != 1 || e.Unused[0] != want {
		t.Errorf("got %q, want %q", e.Unused, want)
	}
	if math.Abs(e.Ranks[1].IdleShare-(1-16.0/54)) > 1e-9 {
		t.Errorf("idle %v", e.Ranks[1].IdleShare)
	}
}
