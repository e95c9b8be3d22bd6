package solver

// pick chooses one option per device from the node, or says that none exist.
// The picks lie in the search's knapsack until it is next asked.
func (s *search) pick(n *node) bool {
	if !s.narrow(n) {
		return false
	}
	k := &s.sack
	k.total, k.need = s.total, n.split.need
	k.groups, s.choices = k.groups[:0], s.choices[:0]
	for i, list := range n.options {
		k.groups = append(k.groups, s.group(n.split.values, len(s.m.kinds[i].ranks), list))
	}
	if !k.solve() {
		return false
	}
	s.discard(n)
	return true
}

// picked are the picks of the knapsack, by kind and device of the kind.
func (s *search) picked() [][]*option {
	picks := make([][]*option, len(s.sack.groups))
	for k, list := range s.sack.picks {
		for _, c := range list {
			picks[k] = append(picks[k], s.pool.list[s.sack.groups[k].choices[c].source])
		}
	}
	return picks
}

// discard drops the options that are worth too little for what they take; the
// children of the node need not look at them again.
func (s *search) discard(n *node) {
	for k, list := range n.options {
		kept := list[:0]
		for _, id := range list {
			if !s.sack.useless(k, s.pool.list[id].batch, n.split.values[id]) {
				kept = append(kept, id)
			}
		}
		n.options[k] = s.undominated(n, kept)
	}
}

// group keeps of every batch the option of the largest value, and of those the
// fastest.
func (s *search) group(values []int, devices int, list []int32) group {
	from := len(s.choices)
	for _, id := range list {
		value := values[id]
		o := s.pool.list[id]
		last := len(s.choices) - 1
		if last < from || s.choices[last].batch != o.batch {
			s.choices = append(s.choices, choice{o.batch, value, int(id)})
			continue
		}
		old := &s.choices[last]
		if value > old.value || value == old.value && s.pool.totals[id] < s.pool.totals[old.source] {
			*old = choice{o.batch, value, int(id)}
		}
	}
	return group{devices, s.choices[from:len(s.choices):len(s.choices)]}
}

// narrow drops the options that can be part of no solution below the limit,
// until nothing changes; it returns false if a device is left with none. Such
// options lie above a bound; or their times, raised to what some device
// reaches anyway, are already too much; or all other devices together cannot
// make up for so small or so large a batch. What the options of a device have
// in common it must reach, which raises the lower bounds.
func (s *search) narrow(n *node) bool {
	for {
		before, after := 0, 0
		low, high := 0, 0
		for k, list := range n.from {
			kept := n.options[k][:0]
			if n.lowered >= 0 { // all else was looked at
				kept = s.within(n, list, kept)
			} else {
				kept = s.filter(n, list, kept)
			}
			if len(kept) == 0 {
				return false
			}
			before, after = before+len(list), after+len(kept)
			n.options[k] = kept
			low += len(s.m.kinds[k].ranks) * s.pool.list[kept[0]].batch
			high += len(s.m.kinds[k].ranks) * s.pool.list[kept[len(kept)-1]].batch
		}
		n.from, n.lowered = n.options, -1
		if low > s.total || high < s.total {
			return false
		}
		for k, list := range n.options {
			first, last := s.pool.list[list[0]].batch, s.pool.list[list[len(list)-1]].batch
			for s.pool.list[list[0]].batch < s.total-(high-last) {
				if list = list[1:]; len(list) == 0 {
					return false
				}
			}
			for s.pool.list[list[len(list)-1]].batch > s.total-(low-first) {
				if list = list[:len(list)-1]; len(list) == 0 {
					return false
				}
			}
			after -= len(n.options[k]) - len(list)
			n.options[k] = list
		}
		if !s.raise(n) && before == after {
			return true
		}
	}
}

// within appends the options within the bound that was lowered.
func (s *search) within(n *node, list, kept []int32) []int32 {
	most := n.most[n.lowered]
	for _, id := range list {
		if s.pool.times[int(id)*s.steps+n.lowered] <= most {
			kept = append(kept, id)
		}
	}
	return kept
}

// filter appends the options that are worth something, lie in the box and
// leave the iteration below the limit.
func (s *search) filter(n *node, list, kept []int32) []int32 {
	steps := s.steps
	values, exposed, limit := n.split.values, n.split.exposed, s.limit
	lossy, beside := n.split.lossy, n.split.beside[:steps]
	weights, least, most := n.split.weights[:steps], n.least[:steps], n.most[:steps]
next:
	for _, id := range list {
		if values[id] < 0 {
			continue
		}
		sum := exposed
		times := s.pool.times[int(id)*steps:][:steps]
		for d, t := range times {
			if t > most[d] {
				continue next
			}
			if t < least[d] {
				t = least[d]
			}
			if lossy {
				t = beside[d].with(t)
			}
			sum += weights[d] * t
		}
		if sum < limit {
			kept = append(kept, id)
		}
	}
	return kept
}

// raise lifts the lower bounds to what every option of some device reaches.
func (s *search) raise(n *node) bool {
	raised := false
	steps := s.steps
	for _, list := range n.options {
		for d, bound := range n.least {
			least := s.pool.times[int(list[0])*steps+d]
			for _, id := range list[1:] {
				if least <= bound {
					break
				}
				least = min(least, s.pool.times[int(id)*steps+d])
			}
			if least > bound {
				n.least[d], raised = least, true
			}
		}
	}
	return raised
}
