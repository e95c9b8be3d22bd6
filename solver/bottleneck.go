package solver

import (
	"fmt"
	"math"
)

// Limit is what keeps a device, or the whole plan, from being faster.
type Limit string

// The limits.
const (
	LimitCompute Limit = "compute" // it computes all the time that others wait for
	LimitMemory  Limit = "memory"  // it has time for more samples, but no memory
	LimitLink    Limit = "link"    // the collectives take longer than computing
	LimitNone    Limit = "none"    // it has time and memory, but no sample that fits between
)

// binding is the step that takes most of the iteration.
func binding(p Prediction) StepPrediction {
	top := p.Steps[0]
	for _, s := range p.Steps[1:] {
		if s.TotalMs > top.TotalMs {
			top = s
		}
	}
	return top
}

// bottleneck is one sentence: who binds the largest step, by what.
func (m *model) bottleneck(p Prediction) string {
	s := binding(p)
	pass := "forward"
	if s.Backward {
		pass = "backward"
	}
	share := 100.0
	if p.IterationMs > 0 {
		share = 100 * s.TotalMs / p.IterationMs
	}
	step := fmt.Sprintf("the %s of %s takes %.1f of %.1f ms (%.0f %%)", pass, s.Class, s.TotalMs, p.IterationMs, share)
	if s.Rank < 0 {
		return fmt.Sprintf("link: %s and waits for its collectives", step)
	}
	return fmt.Sprintf("compute: %s and waits for device %d (%s)", step, s.Rank, label(m.problem.Devices[s.Rank]))
}

// planBottleneck adds what keeps work away from the slowest device: the device
// that would have time for another sample and has no memory for it.
func (m *model) planBottleneck(a Allocation, p Prediction) string {
	sentence := m.bottleneck(p)
	if binding(p).Rank < 0 {
		return sentence
	}
	for i := range a.Ranks {
		if limit, lack := m.limitOf(i, a, p); limit == LimitMemory {
			return fmt.Sprintf("memory: device %d (%s) has time for one sample more and lacks %s for it; %s",
				i, label(m.problem.Devices[i]), amount(lack), sentence)
		}
	}
	return sentence
}

// limitOf says what limits a rank, and for memory how many bytes it lacks to
// take one sample more in the time that the others need anyway.
func (m *model) limitOf(rank int, a Allocation, p Prediction) (Limit, int64) {
	r := a.Ranks[rank]
	k := m.kinds[m.kindOf[rank]]
	own := m.loadWith(k, r.Batch, cutsOf(r.MicroBatches), r.Activations, r.KeptUnits)
	ragged := m.raggedIn(a)
	beside := m.overlaps(ragged, m.every()&^ragged)
	reached, link := make([]float64, len(p.Steps)), true
	for d, s := range p.Steps {
		reached[d] = math.Inf(1)
		link = link && s.Rank < 0
	}
	for _, part := range p.parts {
		t := own.times[part.step]
		if r.KeptUnits[p.Steps[part.step].Class] >= part.kept {
			t = own.keeping[part.step]
		}
		t = beside[part.step].with(t)
		if part.rank >= 0 && t >= part.unitMs*(1-1e-6) {
			return LimitCompute, 0
		}
		reached[part.step] = min(reached[part.step], part.unitMs)
	}
	if link {
		return LimitLink, 0
	}
	u := newMenu(m, k, m.overlaps(0, 0))
	u.grow(r.Batch + 1)
	times := make([]float64, len(reached))
	room, fits := int64(0), false
	for _, policy := range m.policies {
		u.sizes(r.Batch+1, func(size int) {
			left := min(u.load(&option{batch: r.Batch + 1, micro: size, policy: policy, times: times})-m.transitOf(rank, r), k.mostState)
			for d, ms := range times {
				times[d] = beside[d].with(ms)
			}
			if noneAbove(times, reached) && (!fits || left > room) {
				room, fits = left, true
			}
		})
	}
	if !fits {
		return LimitCompute, 0
	}
	if lack := m.stateHeld(r) - room; lack > 0 {
		return LimitMemory, lack
	}
	return LimitNone, 0
}
