package solver

// A reduction that arrives brings every rank's part of a share before they are added up, so
// that a rank with more than the even share needs more memory for it than the others: what the
// unit has times the ranks times the share. With even shares that is counted with MemoryBytes.

// window is what has arrived at most, with even shares, of the reductions of a set of classes
// that are under way together: those of neighbours in the order of the model. Held units are
// reduced after the first one.
func (m *model) window(set classes) int64 {
	units := m.problem.Units
	most, before, first := int64(0), int64(0), int64(-1)
	for i, u := range units {
		if u.Held {
			continue
		}
		own := int64(0)
		if set.has(i) {
			own = u.ReceivedBytes
		}
		most = max(most, before+own)
		if u.Count > 1 {
			most = max(most, 2*own)
		}
		if first < 0 {
			first = own
		}
		before = own
	}
	for i, u := range units {
		if u.Held && set.has(i) {
			most = max(most, max(first, 0)+u.ReceivedBytes)
		}
	}
	return most
}

// shareIn is the largest share of so many bytes of state that fits into a room, with what
// arrives for it beyond a window; -1 if the room is less than nothing.
func (m *model) shareIn(room, state, window int64) int {
	ppm := ppmIn(room, state)
	if window > 0 && ppm > 0 {
		ppm = min(ppm, ppmIn(room+window, state+int64(len(m.kindOf))*window))
	}
	return ppm
}

// transit is what a share needs beyond a window.
func (m *model) transit(state, window int64, ppm int) int64 {
	if window == 0 {
		return 0
	}
	return max(0, part(state+int64(len(m.kindOf))*window, ppm)-window-part(state, ppm))
}

// transitOf is what the shares of a rank need beyond what even ones would.
func (m *model) transitOf(rank int, r RankAllocation) int64 {
	sum := int64(0)
	for ppm, set := range m.byShare(r) {
		if ppm != evenPPM(rank, len(m.kindOf)) {
			sum += m.transit(m.stateIn(set), m.window(set), ppm)
		}
	}
	return sum
}
