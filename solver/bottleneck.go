package solver

import "fmt"

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
	share := 100.0
	if p.IterationMs > 0 {
		share = 100 * s.TotalMs / p.IterationMs
	}
	step := fmt.Sprintf("%s takes %s (%.0f %%)", passOf(s), secondsOf(s.TotalMs, p.IterationMs), share)
	if s.Rank < 0 {
		return fmt.Sprintf("link: %s and waits for its collectives", step)
	}
	return fmt.Sprintf("compute: %s and waits for %s", step, m.device(s.Rank))
}

// planBottleneck adds what keeps work away from the slowest device: the device
// that would have time for another sample and has no memory for it.
func (m *model) planBottleneck(a Allocation, p Prediction) string {
	sentence := m.bottleneck(p)
	if binding(p).Rank < 0 {
		return sentence
	}
	for i := range a.Ranks {
		if l := m.limitOf(i, a, p); l.limit == LimitMemory {
			return fmt.Sprintf("memory: %s has time for one sample more and lacks %s for it; %s", m.device(i), amount(l.lack), sentence)
		}
	}
	return sentence
}
