package solver

import "math"

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
	s := m.fastest()
	if s == nil {
		return Plan{}, m.infeasible()
	}
	s.settle()
	return m.plan(StrategyCephalo, s.allocate())
}

// fastest runs the search for both ways to share, nil if nothing fits.
func (m *model) fastest() *search {
	var best *search
	cutoff := math.Inf(1)
	for _, shares := range []Shares{EvenShares, RaggedShares} {
		if m.problem.Shares != "" && m.problem.Shares != shares {
			continue
		}
		if s := newSearch(m, shares); s.run(cutoff) {
			best, cutoff = s, s.bestMs*(1-tolerance)
		}
	}
	return best
}
