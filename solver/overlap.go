package solver

// joined is what a pass over one unit takes beside its collectives with even shares,
// given the time of computing it. Whoever asks takes the larger of it and the
// collectives alone, as if nothing were lost.
func (m *model) joined(class int, backward bool, ms float64) float64 {
	u := m.problem.Units[class]
	if u.OverlapLoss == 0 || u.Held {
		return ms
	}
	c := m.problem.Collectives[u.Class]
	link := c.AllGatherMs
	if backward {
		link += c.ReduceScatterMs
	}
	return max(ms, link) + u.OverlapLoss*min(ms, link)
}
