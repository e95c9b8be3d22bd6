package solver

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func batchesOf(p Plan) []int {
	var out []int
	for _, r := range p.Ranks {
		out = append(out, r.Batch)
	}
	return out
}

func TestSolveByHand(t *testing.T) {
	tests := map[string]struct {
		change  func(*Problem)
		ms      float64
		batches []int
		shares  Shares
	}{
		"the example of docs/planner.md": {nil, 38, []int{4, 2}, EvenShares},
		// 350 - 480 does not fit on the slow device, ragged collectives take 1.5 times: 2*(4.5+12) + 6 + 2
		"ragged where even shares do not fit": {func(p *Problem) { p.Devices[1].UsableMemoryBytes = 450 }, 41, []int{4, 2}, RaggedShares},
		"forced to ragged":                    {func(p *Problem) { p.Shares = RaggedShares }, 41, []int{4, 2}, RaggedShares},
		// 6 samples on the fast device: 2*(6+18) + 6
		"a device that cannot compute only stores": {func(p *Problem) {
			p.Devices[1].UsableMemoryBytes = 100 + 480 + 60
			p.Shares = EvenShares
		}, 54, []int{6, 0}, EvenShares},
		"batches by hand":             {func(p *Problem) { p.FixedBatches = []int{3, 3} }, 54, []int{3, 3}, EvenShares},
		"keep, since memory is there": {func(p *Problem) { p.Policies = []Policy{Recompute, Keep} }, 30, []int{4, 2}, EvenShares},
		// one sample on a device 100 times slower: 2*(100+300) + 6
		"all devices used": {func(p *Problem) {
			p.Devices[1].Costs = map[string]ClassCost{"block": {ForwardMs: Cost{Tail: Line{100, 0}}, BackwardMs: Cost{Tail: Line{200, 0}}}}
			p.UseAll = true
		}, 806, []int{5, 1}, EvenShares},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := twoDevices()
			if tt.change != nil {
				tt.change(&p)
			}
			plan, err := Solve(p)
			if err != nil {
				t.Fatal(err)
			}
			if plan.Predicted.IterationMs != tt.ms || !slices.Equal(batchesOf(plan), tt.batches) || plan.Shares != tt.shares {
				t.Errorf("got %v ms with batches %v and %s shares, want %v, %v, %s",
					plan.Predicted.IterationMs, batchesOf(plan), plan.Shares, tt.ms, tt.batches, tt.shares)
			}
			if err := checkPlan(p, plan); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTies checks what is preferred among plans of equal time.
func TestTies(t *testing.T) {
	t.Run("even shares", func(t *testing.T) {
		p := twoDevices()
		p.RaggedFactor = 0.5 // collectives hide behind computing but for the exposed ones
		p.Collectives = nil
		if plan, err := Solve(p); err != nil || plan.Shares != EvenShares {
			t.Errorf("got %s shares, %v", plan.Shares, err)
		}
	})
	t.Run("no offloading", func(t *testing.T) {
		p := twoDevices()
		p.Policies = []Policy{Offload, Recompute}
		plan, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range plan.Ranks {
			if r.Activations != Recompute {
				t.Errorf("rank %d has %s", r.Rank, r.Activations)
			}
		}
	})
	t.Run("the larger batch on the lower rank", func(t *testing.T) {
		p := twoDevices()
		p.Devices[1].Costs = p.Devices[0].Costs
		p.GlobalBatch = 7
		if plan, err := Solve(p); err != nil || !slices.Equal(batchesOf(plan), []int{4, 3}) {
			t.Errorf("got %v, %v", batchesOf(plan), err)
		}
	})
	t.Run("headroom", func(t *testing.T) {
		p := twoDevices()
		const scale = 1 << 22
		for i := range p.Devices {
			d := &p.Devices[i]
			d.UsableMemoryBytes, d.ReservedBytes = d.UsableMemoryBytes*scale, d.ReservedBytes*scale
			c := d.Costs["block"]
			c.MemoryBytes = Cost{Tail: Line{50 * scale, 50 * scale}}
			d.Costs["block"] = c
		}
		p.Units[0].Parameters *= scale
		p.Units[0].TrainableParameters *= scale
		plan, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		// microbatches of 1 on both leave the most: 1000 - 100 - 100 - 480
		for _, r := range plan.Ranks {
			if free := r.Predicted.UsableMemoryBytes - r.Predicted.MemoryBytes; free != 320*scale {
				t.Errorf("rank %d has %d free, want %d", r.Rank, free, 320*scale)
			}
		}
	})
}

// TestSolveIsDeterministic solves every problem twice, and once with equal
// devices in another order.
func TestSolveIsDeterministic(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	solved := 0
	for i := range 300 {
		p := randomProblem(r)
		first, err := Solve(p)
		if err != nil {
			continue
		}
		solved++
		second, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		a, err := first.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := second.Marshal(); err != nil || !bytes.Equal(a, b) {
			t.Fatalf("problem %d: two plans, %v:\n%s\n%s", i, err, a, b)
		}
		turned := p
		turned.Devices = slices.Clone(p.Devices)
		slices.Reverse(turned.Devices)
		turned.FixedBatches = slices.Clone(p.FixedBatches)
		slices.Reverse(turned.FixedBatches)
		for rank := range turned.Devices {
			turned.Devices[rank].Rank = rank
		}
		if other, err := Solve(turned); err != nil || !near(other.Predicted.IterationMs, first.Predicted.IterationMs) {
			t.Fatalf("problem %d: devices in reverse take %v ms instead of %v, %v", i, other.Predicted.IterationMs, first.Predicted.IterationMs, err)
		}
	}
	if solved < 100 {
		t.Errorf("only %d problems had a plan", solved)
	}
}

func near(a, b float64) bool { return a-b <= 1e-6*b+2e-6 && b-a <= 1e-6*a+2e-6 }

// TestSolveIsMonotone checks that memory, speed and freedom never hurt.
func TestSolveIsMonotone(t *testing.T) {
	relax := map[string]func(*Problem){
		"more memory": func(p *Problem) {
			for i := range p.Devices {
				p.Devices[i].UsableMemoryBytes += 5000
			}
		},
		"all policies":         func(p *Problem) { p.Policies = []Policy{Keep, Recompute, Offload} },
		"no host limit":        func(p *Problem) { setHost(p, 0) },
		"no use of every one":  func(p *Problem) { p.UseAll = false },
		"cheaper ragged links": func(p *Problem) { p.RaggedFactor = 1 },
	}
	for _, name := range sortedKeys(relax) {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			for i := range 150 {
				p := randomProblem(r)
				before, err := Solve(p)
				if err != nil {
					continue
				}
				p.Devices = slices.Clone(p.Devices)
				relax[name](&p)
				after, err := Solve(p)
				if err != nil || after.Predicted.IterationMs > before.Predicted.IterationMs+2e-6 {
					t.Fatalf("problem %d: %v ms became %v, %v", i, before.Predicted.IterationMs, after.Predicted.IterationMs, err)
				}
			}
		})
	}
}

func setHost(p *Problem, bytes int64) {
	for i := range p.Devices {
		p.Devices[i].HostMemoryBytes = bytes
	}
}

// TestInfeasible checks that the bytes that the message asks for are enough
// and that one less is not.
func TestInfeasible(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	checked := 0
	for i := range 600 {
		p := randomProblem(r)
		setHost(&p, 0)
		if i%4 == 0 {
			p.Shares = EvenShares
		}
		_, err := Solve(p)
		var none *InfeasibleError
		if !errors.As(err, &none) {
			continue
		}
		checked++
		if none.MissingBytes < 1 || !strings.Contains(err.Error(), fmt.Sprintf("device %d (%s) lacks %s", none.Rank, none.Device, count(int(none.MissingBytes), "byte"))) {
			t.Fatalf("problem %d: %v", i, err)
		}
		less := withMemory(p, none.Rank, none.MissingBytes-1)
		if _, err := Solve(less); !errors.As(err, new(*InfeasibleError)) {
			t.Fatalf("problem %d: %v: one byte less is enough too", i, none)
		}
		for range 3 * len(p.Devices) { // several devices may lack, one after the other
			p = withMemory(p, none.Rank, none.MissingBytes)
			if _, err = Solve(p); err == nil || !errors.As(err, &none) {
				break
			}
		}
		if err != nil && !wobbly(p) {
			t.Fatalf("problem %d: still %v after %v", i, err, none)
		}
	}
	if checked < 50 {
		t.Errorf("only %d problems had no plan", checked)
	}
}

func withMemory(p Problem, rank int, bytes int64) Problem {
	p.Devices = slices.Clone(p.Devices)
	p.Devices[rank].UsableMemoryBytes += bytes
	return p
}

// wobbly says that memory does not rise with the samples, so that no cut may
// be as frugal as its most frugal microbatch.
func wobbly(p Problem) bool {
	for _, d := range p.Devices {
		for _, c := range d.Costs {
			for s := 1; s < p.GlobalBatch; s++ {
				if c.MemoryBytes.At(s) > c.MemoryBytes.At(s+1) {
					return true
				}
			}
		}
	}
	return false
}

// TestSolveWithin checks the bound of a search that is stopped early.
func TestSolveWithin(t *testing.T) {
	p := fleet{devices: 16, kinds: 16, batch: 160, classes: 3, memory: 2, policies: []Policy{Recompute}, seed: 5}.problem()
	exact, low, err := SolveWithin(p, 0)
	if err != nil || low != exact.Predicted.IterationMs {
		t.Fatalf("bound %v of an exact plan of %v ms, %v", low, exact.Predicted.IterationMs, err)
	}
	quick, low, err := SolveWithin(p, 5)
	if err != nil {
		t.Fatal(err)
	}
	if low > exact.Predicted.IterationMs || quick.Predicted.IterationMs < exact.Predicted.IterationMs || low < 0.8*exact.Predicted.IterationMs {
		t.Errorf("bound %v, best %v, found %v ms", low, exact.Predicted.IterationMs, quick.Predicted.IterationMs)
	}
	if err := checkPlan(p, quick); err != nil {
		t.Error(err)
	}
}

// The slowest fleet that we know: a search cut off after 400 boxes comes within
// 1 % of the optimum without units kept in part, 8300.406 ms, which takes 14,000.
func TestSolveWithinOnTheSlowestFleet(t *testing.T) {
	f := fleet{devices: 64, kinds: 64, batch: 1024, classes: 3, memory: 2, policies: []Policy{Keep, Recompute}, seed: 1}
	plan, low, err := SolveWithin(f.problem(), 400)
	if err != nil {
		t.Fatal(err)
	}
	const optimum = 8300.406
	if ms := plan.Predicted.IterationMs; ms > 1.01*optimum || low > optimum {
		t.Errorf("%v ms, no plan below %v ms, want %v to 1 %% more", ms, low, optimum)
	}
}
