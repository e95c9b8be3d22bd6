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
	plan, _, err := SolveWithin(p, 0)
	return plan, err
}

// SolveWithin is Solve with a bound on the work: each search looks at no more
// than so many boxes (0 for no bound). Problems of three and more classes on
// many devices that are all different can need tens of thousands. It returns,
// beside the plan, an iteration time that no plan beats: the plan's own if the
// search came to its end.
func SolveWithin(p Problem, boxes int) (Plan, float64, error) {
	m, err := newModel(p)
	if err != nil {
		return Plan{}, 0, err
	}
	m.boxes = boxes
	a, low, err := m.solveWithin()
	if err != nil {
		return Plan{}, 0, err
	}
	plan, err := m.plan(StrategyCephalo, a)
	if err != nil {
		return Plan{}, 0, err
	}
	plan.Alternatives = []Alternative{
		m.alternative(StrategyEven, false, plan.Predicted.IterationMs),
		m.alternative(StrategyEvenOrdinary, true, plan.Predicted.IterationMs),
	}
	return plan, min(low, plan.Predicted.IterationMs), nil
}

// solve is the best allocation.
func (m *model) solve() (Allocation, error) {
	a, _, err := m.solveWithin()
	return a, err
}

// solveWithin is the best allocation and a time that none beats.
func (m *model) solveWithin() (Allocation, float64, error) {
	s, low := m.fastest()
	if s == nil {
		return Allocation{}, 0, m.infeasible()
	}
	s.settle()
	return s.allocate(), low, nil
}

// fastest runs the search for both ways to share, each without offloading and
// then with it, and keeps what is strictly faster; nil if nothing fits.
func (m *model) fastest() (*search, float64) {
	var best *search
	cutoff, low := math.Inf(1), math.Inf(1)
	for _, shares := range []Shares{EvenShares, RaggedShares} {
		if m.problem.Shares != "" && m.problem.Shares != shares {
			continue
		}
		for _, variant := range m.variants() {
			s := newSearch(variant, shares)
			if s.run(cutoff) {
				best, cutoff = s, s.bestMs*(1-tolerance)
			}
			if s.stopped {
				low = min(low, s.lowMs)
			}
		}
	}
	return best, low
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
