package solver

// undominated drops the options that another one of the same batch beats in the
// box: it leaves as much room, and no step takes longer that is not as long in
// the whole box anyway. The narrower the box, the more are alike: in the end
// about one option of every batch is left.
func (s *search) undominated(n *node, list []int32) []int32 {
	kept, first, batch := list[:0], 0, -1
next:
	for _, id := range list {
		if b := s.pool.brief[id].batch; b != batch {
			first, batch = len(kept), b
		}
		at := first
		for i := first; i < len(kept); i++ {
			switch s.compare(n, kept[i], id) {
			case better, alike:
				// nothing was dropped for this one: what it beats, that one beats too
				continue next
			case neither:
				kept[at] = kept[i]
				at++
			}
		}
		kept = append(kept[:at], id)
	}
	return kept
}

// order is how an option compares with another.
type order int

const (
	alike order = iota
	better
	worse
	neither
)

func (s *search) compare(n *node, a, b int32) order {
	steps := s.steps
	least, ta, tb := n.least[:steps], s.pool.times[int(a)*steps:][:steps], s.pool.times[int(b)*steps:][:steps]
	good, bad := s.roomier(n, a, b)
	if good && bad {
		return neither
	}
	for d, x := range ta {
		x, y := max(least[d], x), max(least[d], tb[d])
		good, bad = good || x < y, bad || x > y
		if good && bad {
			return neither
		}
	}
	switch {
	case good:
		return better
	case bad:
		return worse
	}
	return alike
}

// roomier says whether the first option may leave more room than the second, and
// whether it may leave less, whatever becomes of what the node leaves open.
func (s *search) roomier(n *node, a, b int32) (more, less bool) {
	if p, q := &s.pool.brief[a], &s.pool.brief[b]; p.way == q.way {
		return p.room > q.room, p.room < q.room
	}
	x, y := s.pool.list[a], s.pool.list[b]
	few, many := n.split.least, n.split.most
	more, less = x.roomAt(few) > y.roomAt(many), x.roomAt(many) < y.roomAt(few)
	if few < many { // one of them may yet need too much host memory
		more, less = more || !y.hostFits(few), less || !x.hostFits(few)
	}
	return more, less
}
