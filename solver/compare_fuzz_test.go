package solver

import (
	"math/rand/v2"
	"testing"
)

// FuzzCompare: whatever the problem, every strategy keeps to the memory that
// there is, and loses no sample.
func FuzzCompare(f *testing.F) {
	f.Add(uint64(1), 12, int64(0), 0.0, uint8(0))
	f.Add(uint64(2), 64, int64(1)<<20, 1e9, uint8(3))
	f.Add(uint64(3), 7, int64(1), 1e-9, uint8(7))
	f.Fuzz(func(t *testing.T, seed uint64, batch int, memory int64, speed float64, nodes uint8) {
		r := rand.New(rand.NewPCG(seed, 13))
		p := randomProblem(r)
		p.FixedBatches, p.UseAll = nil, false
		if batch%100 != 0 {
			p.GlobalBatch = batch % 100
		}
		if memory != 0 {
			p.Devices[0].UsableMemoryBytes = memory
		}
		if nodes > 0 {
			p.Links = &Links{Between: speed}
			for range min(nodes, 5) {
				p.Links.Inside = append(p.Links.Inside, speed*r.Float64())
			}
			for range p.Devices {
				p.Links.NodeOf = append(p.Links.NodeOf, r.IntN(len(p.Links.Inside)))
			}
		}
		list, err := Compare(p)
		if err != nil {
			return
		}
		for _, o := range list {
			if err := checkOutcome(p, o); err != nil {
				t.Fatalf("%s: %v", o.Strategy, err)
			}
		}
	})
}
