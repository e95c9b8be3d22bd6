package solver

import "slices"

// change is one device of a group that goes from one choice to another.
type change struct {
	group, from, to int
	gain            int
	ok              bool
}

// repair looks for one or two devices whose change takes exactly the samples
// that are left and keeps enough value. It may miss a solution, never make a
// wrong one.
func (k *knapsack) repair(left int) bool {
	reach := 2 * max(left, k.price.rise)
	k.changed = slices.Grow(k.changed[:0], 2*reach+1)[:2*reach+1] // by samples taken: the two best, of different groups
	best := k.changed
	clear(best)
	for g := range k.groups {
		k.changes(g, reach, best)
	}
	for d := -reach; d <= reach; d++ {
		if d == left {
			if c := best[d+reach][0]; c.ok && k.value+c.gain >= k.need {
				k.apply(c)
				return true
			}
		}
		other := left - d
		if other < d || other > reach {
			continue
		}
		for _, a := range best[d+reach] {
			for _, b := range best[other+reach] {
				if a.ok && b.ok && a.group != b.group && k.value+a.gain+b.gain >= k.need {
					k.apply(a)
					k.apply(b)
					return true
				}
			}
		}
	}
	return false
}

// changes notes what one device of the group can do.
func (k *knapsack) changes(g, reach int, best [][2]change) {
	choices, seen := k.groups[g].choices, -1
	for _, from := range k.picks[g] {
		if from == seen {
			continue
		}
		seen = from
		for to, c := range choices {
			d := c.batch - choices[from].batch
			if d < -reach || d > reach || to == from {
				continue
			}
			n := change{g, from, to, c.value - choices[from].value, true}
			slot := &best[d+reach]
			switch {
			case !slot[0].ok || slot[0].group == g && n.gain > slot[0].gain:
				slot[0] = n
			case n.gain > slot[0].gain:
				slot[0], slot[1] = n, slot[0]
			case slot[0].group != g && (!slot[1].ok || n.gain > slot[1].gain):
				slot[1] = n
			}
		}
	}
}

func (k *knapsack) apply(c change) {
	for i, at := range k.picks[c.group] {
		if at == c.from {
			k.picks[c.group][i] = c.to
			k.value += c.gain
			return
		}
	}
}
