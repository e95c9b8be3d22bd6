package solver

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// FuzzParsePlan: what is accepted is valid, and writes and reads back alike.
func FuzzParsePlan(f *testing.F) {
	good, err := samplePlan().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"version":1,"ranks":[{"batch":1e99}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, err := ParsePlan(data)
		if err != nil {
			return
		}
		first, err := plan.Marshal()
		if err != nil {
			t.Fatalf("accepted and not written: %v", err)
		}
		again, err := ParsePlan(first)
		if err != nil {
			t.Fatalf("written and not accepted: %v", err)
		}
		if second, err := again.Marshal(); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("written differently the second time: %v", err)
		}
	})
}

// FuzzSolve: a problem may be faulty or have no plan; what comes out keeps
// every limit and is not beaten by the even plan
// unless its batches are set by hand.
func FuzzSolve(f *testing.F) {
	f.Add(uint64(1), 12, int64(0), 0.0, 0.0)
	f.Add(uint64(2), 300, int64(1)<<40, 1e30, -1.0)
	f.Add(uint64(3), 0, int64(-5), 2.5, 1e-9)
	f.Fuzz(func(t *testing.T, seed uint64, batch int, memory int64, slope, value float64) {
		r := rand.New(rand.NewPCG(seed, 9))
		p := randomProblem(r)
		if batch < 0 || batch > 300 {
			batch %= 300
		}
		if batch != 0 {
			p.GlobalBatch = batch
		}
		d := &p.Devices[r.IntN(len(p.Devices))]
		class := p.Units[r.IntN(len(p.Units))].Class
		costs := map[string]ClassCost{}
		for name, c := range d.Costs {
			costs[name] = c
		}
		c := costs[class]
		if memory != 0 {
			d.UsableMemoryBytes = memory
		}
		if slope != 0 {
			c.ForwardMs.Tail.Slope, c.MemoryBytes.Tail.Slope = slope, slope
		}
		if value != 0 {
			c.BackwardMs.Points = append([][2]float64{}, c.BackwardMs.Points...)
			c.BackwardMs.Points = append(c.BackwardMs.Points, [2]float64{float64(20 + r.IntN(3)), value})
		}
		costs[class] = c
		d.Costs = costs
		plan, err := Solve(p)
		if err != nil {
			return
		}
		if err := checkPlan(p, plan); err != nil {
			t.Fatal(err)
		}
		if even := plan.Alternatives[0].IterationMs; !p.UseAll && p.FixedBatches == nil && even > 0 && even < plan.Predicted.IterationMs*(1-1e-6)-2e-6 && p.Shares != RaggedShares {
			t.Fatalf("the even plan takes %v ms, the best %v", even, plan.Predicted.IterationMs)
		}
	})
}
