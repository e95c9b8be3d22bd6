package solver

import (
	"math"
	"strings"
	"testing"
)

func explain(t *testing.T, p Problem) (Plan, Explanation) {
	t.Helper()
	plan, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Explain(p, plan)
	if err != nil {
		t.Fatal(err)
	}
	return plan, e
}

func TestExplainCompute(t *testing.T) {
	plan, e := explain(t, twoDevices())
	if want := "compute: the backward of block takes 24.0 of 38.0 ms (63 %) and waits for device 0 (fast)"; e.Bottleneck != want || plan.Predicted.Bottleneck != want {
		t.Errorf("got %q and %q, want %q", e.Bottleneck, plan.Predicted.Bottleneck, want)
	}
	for _, r := range e.Ranks {
		// each computes 2*(4+12) of 38 ms
		if r.Limit != LimitCompute || math.Abs(r.IdleShare-6.0/38) > 1e-9 {
			t.Errorf("rank %d: %s, idle %v", r.Rank, r.Limit, r.IdleShare)
		}
	}
}

func TestExplainLink(t *testing.T) {
	p := twoDevices()
	p.Collectives = map[string]Collective{"block": {AllGatherMs: 500, ReduceScatterMs: 100}}
	_, e := explain(t, p)
	if !strings.HasPrefix(e.Bottleneck, "link: the backward of block takes 1.20 of 2.80 s") {
		t.Errorf("got %q", e.Bottleneck)
	}
	if e.Ranks[0].Limit != LimitLink {
		t.Errorf("rank 0: %s", e.Ranks[0].Limit)
	}
}

// The fast device has memory for one sample, so the slow one does the rest.
func TestExplainMemory(t *testing.T) {
	p := twoDevices()
	c := p.Devices[0].Costs["block"]
	c.KeptBytesPerSample = map[Policy]float64{Recompute: 100}
	p.Devices[0].Costs["block"] = c
	p.Shares = EvenShares
	plan, e := explain(t, p)
	if b := batchesOf(plan); b[0] != 1 || b[1] != 5 {
		t.Fatalf("batches %v", b)
	}
	if e.Ranks[0].Limit != LimitMemory || e.Ranks[1].Limit != LimitCompute {
		t.Errorf("limits %s and %s", e.Ranks[0].Limit, e.Ranks[1].Limit)
	}
	// two samples need 480 of state, 2*2*100 kept and 100 computing of 900
	if want := "memory: device 0 (fast) has time for one sample more and lacks 80 bytes for it; compute: "; !strings.HasPrefix(e.Bottleneck, want) {
		t.Errorf("got %q, want %q", e.Bottleneck, want)
	}
	// four samples need 480 of state, 2*4*100 kept and 100 computing: 480 more than
	// the 900, and take 38 of 86 ms
	if want := "what would help most: 480 bytes more on device 0 (fast) would allow 4 samples in place of 1: +126.3 % samples/s"; e.Help != want {
		t.Errorf("got %q, want %q", e.Help, want)
	}
}

func TestExplainUnused(t *testing.T) {
	p := twoDevices()
	slow := p.Devices[1].Costs["block"]
	slow.ForwardMs, slow.BackwardMs = Cost{Tail: Line{100, 0}}, Cost{Tail: Line{500, 0}}
	p.Devices[1].Costs["block"] = slow
	_, e := explain(t, p)
	want := "device 1 (slow) not used, it only stores state: with a sample for it 1.41 s, without 54.0 ms; its memory is needed"
	if len(e.Unused) != 1 || e.Unused[0] != want {
		t.Errorf("got %q, want %q", e.Unused, want)
	}
	// With room for all the state on one device there is nothing to gather.
	p.Devices[0].UsableMemoryBytes = 2000
	want = "device 1 (slow) not used, it only stores state: with a sample for it 1.41 s, without 54.0 ms; left out altogether 50.0 ms, so run without it (--devices)"
	if _, e = explain(t, p); len(e.Unused) != 1 || e.Unused[0] != want {
		t.Errorf("got %q, want %q", e.Unused, want)
	}
	p.FixedBatches = []int{6, 0}
	if _, e = explain(t, p); len(e.Unused) != 1 || !strings.HasSuffix(e.Unused[0], "its batch is 0 by hand") {
		t.Errorf("got %q", e.Unused)
	}
}

// What runs beside computing differs from the plan's once a device is left out.
func TestExplainLeftOutWithOverlapLoss(t *testing.T) {
	p := twoDevices()
	p.Units[0].OverlapLoss = 1
	p.Devices[0].UsableMemoryBytes = 2000
	slow := p.Devices[1].Costs["block"]
	slow.ForwardMs, slow.BackwardMs = Cost{Tail: Line{100, 0}}, Cost{Tail: Line{500, 0}}
	p.Devices[1].Costs["block"] = slow
	_, e := explain(t, p)
	// Two units of 6 and 18 ms beside 3 and 4, and 6 more; alone there is nothing to gather.
	want := "device 1 (slow) not used, it only stores state: with a sample for it 1.42 s, without 68.0 ms; left out altogether 50.0 ms, so run without it (--devices)"
	if len(e.Unused) != 1 || e.Unused[0] != want {
		t.Errorf("got %q, want %q", e.Unused, want)
	}
}

func TestExplainRefusesAnotherProblem(t *testing.T) {
	p := twoDevices()
	plan, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	p.GlobalBatch = 7
	if _, err := Explain(p, plan); err == nil || !strings.Contains(err.Error(), "batches sum to 6, want global_batch 7") {
		t.Errorf("got %v", err)
	}
}
