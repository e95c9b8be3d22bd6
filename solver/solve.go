package solver

import (
	"cmp"
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
// then with it, and keeps what is strictly faster; nil if nothing fits. All
// start before one goes on to the end, the one that promises most first: then
// most of the others need not.
func (m *model) fastest() (*search, float64) {
	var searches []*search // what comes first is preferred at the same time
	variants := m.variants()
	for _, shares := range []Shares{EvenShares, RaggedShares} {
		if m.problem.Shares != "" && m.problem.Shares != shares {
			continue
		}
		for _, c := range variants {
			searches = append(searches, newSearch(c, shares))
		}
	}
	at, best := -1, math.Inf(1)
	cutoff := func(i int) float64 {
		if i > at {
			return best * (1 - tolerance)
		}
		return best * (1 + 2*tolerance) // the search asks for less than its cutoff by a tolerance
	}
	var order []int
	for i, s := range searches {
		if s.start(cutoff(i)) {
			order = append(order, i)
			if s.bestMs < cutoff(i) {
				at, best = i, s.bestMs
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(searches[a].lowMs, searches[b].lowMs) })
	low := math.Inf(1)
	for _, i := range order {
		s := searches[i]
		if limit := cutoff(i); s.finish(limit) && i != at {
			at, best = i, s.bestMs
		} else if i == at {
			best = s.bestMs
		}
		if s.stopped {
			low = min(low, s.lowMs)
		}
	}
	if at < 0 {
		return nil, 0
	}
	return searches[at], low
}

// variants are the options without offloading, if that leaves a policy, and all
// options.
func (m *model) variants() []*catalogue {
	last := len(m.policies) - 1
	if last == 0 || m.policies[last] != Offload {
		return []*catalogue{newCatalogue(m)}
	}
	without := *m
	without.policies = slices.Clone(m.policies[:last])
	return []*catalogue{newCatalogue(&without), newCatalogue(m)}
}
