package solver

// overlap is what runs beside a pass over one unit.
type overlap struct {
	linkMs float64 // the collectives alone
	loss   float64 // the part of the shorter one that running both at once costs
}

// with is the time of the pass if computing takes so long. It never falls as
// that grows.
func (o overlap) with(ms float64) float64 { return max(ms, o.linkMs) + o.loss*min(ms, o.linkMs) }

// floor is the longest time of computing that costs no more than none.
func (o overlap) floor() float64 {
	if o.loss > 0 {
		return 0
	}
	return o.linkMs
}

// overlaps are what runs beside the passes, by step.
func (m *model) overlaps(ragged, even classes) []overlap {
	var out []overlap
	for _, s := range m.steps() {
		u := m.problem.Units[s.class]
		if u.Held {
			out = append(out, overlap{})
			continue
		}
		c := m.problem.Collectives[u.Class]
		link := c.AllGatherMs
		if s.backward {
			link += c.ReduceScatterMs
		}
		out = append(out, overlap{link * m.factor(s.class, ragged, even), u.OverlapLoss})
	}
	return out
}
