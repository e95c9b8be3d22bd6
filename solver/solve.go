package solver

import (
	"math"
	"slices"
)

// Solve finds the plan of the least iteration time. If no plan fits the error
// is an *InfeasibleError; a faulty problem is reported field by field.
//
// Among plans of equal time it prefers even shares, then no offloading, then
// the largest smallest headroom, then the lower rank for the larger batch.
func Solve(p Problem) (Plan, error) {
	m, err := newModel(p)
	if err != nil {
		return Plan{}, err
	}
	a, err := m.solve()
	if err != nil {
		return Plan{}, err
	}
	plan, err := m.plan(StrategyCephalo, a)
	if err != nil {
		return Plan{}, err
	}
	plan.Alternatives = []Alternative{
		m.alternative(StrategyEven, false, plan.Predicted.IterationMs),
		m.alternative(StrategyEvenOrdinary, true, plan.Predicted.IterationMs),
	}
	return plan, nil
}

// solve is the best allocation.
func (m *model) solve() (Allocation, error) {
	s := m.fastest()
	if s == nil {
		return Allocation{}, m.infeasible()
	}
	s.settle()
	return s.allocate(), nil
}

// fastest runs the search for both ways to share, each without offloading and
// then with it, and keeps what is strictly faster; nil if nothing fits.
func (m *model) fastest() *search {
	var best *search
	cutoff := math.Inf(1)
	for _, shares := range []Shares{EvenShares, RaggedShares} {
		if m.problem.Shares != "" && m.problem.Shares != shares {
			continue
		}
		for _, variant := range m.variants() {
			if s := newSearch(variant, shares); s.run(cutoff) {
				best, cutoff = s, s.bestMs*(1-tolerance)
			}
		}
	}
	return best
}

// variants are the model without offloading, if that leaves a policy, and the
// whole model.
func (m *model) variants() []*model {
	last := len(m.policies) - 1
	if last == 0 || m.policies[last] != Offload {
		return []*model{m}
	}
	without := *m
	without.policies = slices.Clone(m.policies[:last])
	return []*model{&without, m}
}
