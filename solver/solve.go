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
	plan.Alternatives = m.alternatives(plan.Predicted.IterationMs)
	return plan, min(low, plan.Predicted.IterationMs), nil
}

// solve is the best allocation.
func (m *model) solve() (Allocation, error) {
	a, _, err := m.solveWithin()
	return a, err
}

// solveWithin is the best allocation and a time that none beats.
func (m *model) solveWithin() (Allocation, float64, error) {
	a, low, err := m.freely()
	if err != nil || !m.problem.prefersAll() || !a.hasIdle() {
		return a, low, err
	}
	all, err := newModel(m.problem.withAll())
	if err != nil {
		return Allocation{}, 0, err
	}
	all.boxes = m.boxes
	if b, low, err := all.freely(); err == nil {
		return b, low, nil
	}
	return a, low, nil // with a sample on each nothing fits
}

// freely is solveWithin where ranks may be without samples, unless all have to be used.
func (m *model) freely() (Allocation, float64, error) {
	s, low := m.fastest(m.variants(), math.Inf(1))
	if s == nil {
		return Allocation{}, 0, m.infeasible()
	}
	if split := m.splitting(); split != nil {
		partly, bound := split.fastest(split.variants(), s.bestMs*(1-tolerance))
		if low = min(low, bound); partly != nil {
			s = partly
		}
	}
	s = m.plainest(s)
	s.settle()
	return s.allocate(), low, nil
}

// fastest runs the search with every catalogue and keeps what is strictly
// faster; nil if nothing fits below a time. All start before one goes on to the
// end, the one that promises most first: then most of the others need not.
func (m *model) fastest(variants []*catalogue, below float64) (*search, float64) {
	var searches []*search // what comes first is preferred at the same time
	for _, c := range variants {
		searches = append(searches, newSearch(c))
	}
	at, best := -1, below
	cutoff := func(i int) float64 {
		if i > at {
			return best * (1 - tolerance)
		}
		return best * (1 + 2*tolerance) // the search asks for less than its cutoff by a tolerance
	}
	var order []int
	for i, s := range slices.Backward(searches) { // the least bound one sets a limit to the others
		if s.start(cutoff(i)) {
			order = append(order, i)
			if s.bestMs < cutoff(i) {
				at, best = i, s.bestMs
			}
		}
	}
	if m.hasty && at >= 0 {
		return searches[at], searches[at].lowMs
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
		return nil, low
	}
	return searches[at], low
}

// splitBoxes bounds the boxes of a search for how many units to keep in part,
// all kinds of devices together: where it is reached, devices are many and all
// different, and the plan is the best found, no slower than without.
const splitBoxes = 30_000

// bounded is the model with a bound on the boxes that depends on its kinds.
func (m *model) bounded() *model {
	boxes := splitBoxes / len(m.kinds)
	if m.boxes == 0 || m.boxes > boxes {
		m.boxes = boxes
	}
	return m
}

// plainest has as few ragged classes as there can be at the same time: none, if
// even shares are as fast.
func (m *model) plainest(s *search) *search {
	if s.bestIn.ragged == 0 || m.problem.Shares == RaggedShares {
		return s
	}
	// a search asks for a tolerance less than it is given, and its first part for another
	even := *m
	even.problem.Shares = EvenShares
	for _, model := range []*model{&even, even.splitting()} {
		if model == nil {
			continue
		}
		if plain, _ := model.fastest(model.borrowing(s), s.bestMs*(1+4*tolerance)); plain != nil {
			return plain
		}
	}
	return s
}

// borrowing are the variants of the model that take what options a search knows.
func (m *model) borrowing(s *search) []*catalogue {
	variants := m.variants()
	for _, c := range variants {
		if slices.Equal(c.m.policies, s.m.policies) && c.m.split == s.m.split {
			c.donor = s.catalogue
		}
	}
	return variants
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
