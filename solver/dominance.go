package solver

// undominated drops the options that another one of the same batch beats in the
// box: it leaves as much room, and no step takes longer that is not as long in
// the whole box anyway. The narrower the box, the more are alike: in the end
// about one option of every batch is left.
func (s *search) undominated(n *node, list []int32) []int32 {
	kept, first, batch := list[:0], 0, -1
next:
	for _, id := range list {
		if o := s.pool.list[id]; o.batch != batch {
			first, batch = len(kept), o.batch
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
	steps := len(s.weights)
	least, ta, tb := n.least[:steps], s.pool.times[int(a)*steps:][:steps], s.pool.times[int(b)*steps:][:steps]
	room := s.pool.list[a].room - s.pool.list[b].room
	good, bad := room > 0, room < 0
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
