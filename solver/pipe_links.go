package solver

import "math"

// gradientBytes is what one gradient weighs when replicas are reduced.
const gradientBytes = 4

// speed is the slowest link among some ranks, in bytes per millisecond, +Inf
// where nothing is known. Without Links it is what the collectives reach: a
// ring gathers (N-1)/N of a unit of 4 bytes a parameter.
func (m *model) speed(ranks ...int) float64 {
	l := m.problem.Links
	slowest := math.Inf(1)
	if len(ranks) < 2 {
		return slowest
	}
	if l == nil {
		n := float64(len(m.kindOf))
		for _, u := range m.problem.Units {
			if ms := m.problem.Collectives[u.Class].AllGatherMs; ms > 0 {
				slowest = min(slowest, float64(u.Parameters)*4*(n-1)/n/ms)
			}
		}
		return slowest
	}
	take := func(v float64) {
		if v > 0 {
			slowest = min(slowest, v)
		}
	}
	for _, r := range ranks {
		if l.NodeOf[r] != l.NodeOf[ranks[0]] {
			take(l.Between)
		}
		take(l.Inside[l.NodeOf[r]])
	}
	return slowest
}

// ringMs is what an all-reduce of so many bytes among ranks takes.
func (m *model) ringMs(bytes float64, ranks ...int) float64 {
	n := float64(len(ranks))
	return 2 * (n - 1) / n * bytes / m.speed(ranks...)
}

// nodeOf is the node of a rank; all are in one if nothing is known.
func (m *model) nodeOf(rank int) int {
	if m.problem.Links == nil {
		return 0
	}
	return m.problem.Links.NodeOf[rank]
}

// boundaryBytes is what one unit hands to the next per sample: the inputs that
// recomputation keeps.
func (m *model) boundaryBytes(class int) float64 {
	most := 0.0
	for _, k := range m.kinds {
		most = max(most, k.costs[class].KeptBytesPerSample[Recompute])
	}
	return most
}
