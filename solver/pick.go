package solver

// value of an option: the state that it can hold, in parts per million, with
// the headroom kept free; -1 if it cannot be used. Even shares are already
// taken off the room, and there is nothing to collect.
func (s *search) value(o *option) int {
	if s.headroom == 0 {
		return o.value
	}
	return s.valueOf(o, s.headroom)
}

func (s *search) valueOf(o *option, headroom int64) int {
	room := o.room - headroom
	if s.shares == RaggedShares {
		return s.m.ppmIn(room)
	}
	if room < 0 {
		return -1
	}
	return 0
}

// need is the value that all options together must reach.
func (s *search) need() int {
	if s.shares == RaggedShares {
		return TotalPPM
	}
	return 0
}

// pick chooses one option per device from the node, or says that none exist.
func (s *search) pick(n *node) ([][]*option, bool) {
	if !s.narrow(n) {
		return nil, false
	}
	groups := make([]group, len(n.options))
	for k, list := range n.options {
		groups[k] = s.group(len(s.m.kinds[k].ranks), list)
	}
	sack := &knapsack{groups: groups, total: s.total, need: s.need()}
	if !sack.solve() {
		return nil, false
	}
	picks := make([][]*option, len(groups))
	for k, list := range sack.picks {
		for _, c := range list {
			picks[k] = append(picks[k], n.options[k][groups[k].choices[c].source])
		}
	}
	s.discard(n, sack)
	return picks, true
}

// discard drops the options that are worth too little for what they take; the
// children of the node need not look at them again.
func (s *search) discard(n *node, sack *knapsack) {
	for k, list := range n.options {
		kept := list[:0]
		for _, o := range list {
			if !sack.useless(k, o.batch, s.value(o)) {
				kept = append(kept, o)
			}
		}
		n.options[k] = kept
	}
}

// group keeps of every batch the option of the largest value, and of those the
// fastest.
func (s *search) group(devices int, list []*option) group {
	g := group{devices: devices}
	for i, o := range list {
		value := s.value(o)
		if value < 0 {
			continue
		}
		last := len(g.choices) - 1
		if last < 0 || g.choices[last].batch != o.batch {
			g.choices = append(g.choices, choice{o.batch, value, i})
			continue
		}
		old := &g.choices[last]
		if value > old.value || value == old.value && o.total < list[old.source].total {
			*old = choice{o.batch, value, i}
		}
	}
	return g
}

// narrow drops the options that can be part of no solution below the limit,
// until nothing changes; it returns false if a device is left with none. Such
// options lie above a bound; or their times, raised to what some device
// reaches anyway, are already too much; or all other devices together cannot
// make up for so small or so large a batch. What the options of a device have
// in common it must reach, which raises the lower bounds.
func (s *search) narrow(n *node) bool {
	own := false // n.options may belong to the parent
	for {
		before, after := 0, 0
		options := n.options
		if !own {
			options, own = make([][]*option, len(n.options)), true
		}
		low, high := 0, 0
		for k, list := range n.options {
			kept := options[k][:0]
			if kept == nil {
				kept = make([]*option, 0, len(list))
			}
			for _, o := range list {
				if s.within(n, o) && s.value(o) >= 0 {
					kept = append(kept, o)
				}
			}
			if len(kept) == 0 {
				return false
			}
			before, after = before+len(list), after+len(kept)
			options[k] = kept
			low += len(s.m.kinds[k].ranks) * kept[0].batch
			high += len(s.m.kinds[k].ranks) * kept[len(kept)-1].batch
		}
		n.options = options
		if low > s.total || high < s.total {
			return false
		}
		for k, list := range options {
			first, last := list[0].batch, list[len(list)-1].batch
			for list[0].batch < s.total-(high-last) {
				if list = list[1:]; len(list) == 0 {
					return false
				}
			}
			for list[len(list)-1].batch > s.total-(low-first) {
				if list = list[:len(list)-1]; len(list) == 0 {
					return false
				}
			}
			after -= len(options[k]) - len(list)
			options[k] = list
		}
		if !s.raise(n) && before == after {
			return true
		}
	}
}

// within says that an option lies in the box and leaves the iteration below the
// limit.
func (s *search) within(n *node, o *option) bool {
	sum := s.exposed
	for d, t := range o.times {
		if t > n.most[d] {
			return false
		}
		sum += s.weights[d] * max(n.least[d], t)
	}
	return sum < s.limit
}

// raise lifts the lower bounds to what every option of some device reaches.
func (s *search) raise(n *node) bool {
	raised := false
	for _, list := range n.options {
		for d := range n.least {
			least := list[0].times[d]
			for _, o := range list[1:] {
				if least <= n.least[d] {
					break
				}
				least = min(least, o.times[d])
			}
			if least > n.least[d] {
				n.least[d], raised = least, true
			}
		}
	}
	return raised
}
