package solver

// decision says which classes have ragged shares and which have even ones, and
// how many units at least and at most those ranks keep that keep some of a class
// only. It need not be complete.
type decision struct {
	ragged, even classes
	least, most  int
}

// division is what follows from a decision. What is open costs and needs as
// little as anything that it can become: no recomputation of the most units, and
// memory for the least.
type division struct {
	decision
	weights  []float64 // units by step
	beside   []overlap
	floors   []float64 // of the times of computing
	lossy    bool      // running both at once costs something
	exposed  float64   // beside what overlaps with it
	fixed    []int64   // by kind: the even shares
	collect  int64     // the state that all rooms together must hold
	collects bool      // there is any
	window   int64     // of what is ragged, once all is decided
	need     int       // what values must sum to
	headroom int64
	values   []int // of the pool's options, -1 if one cannot be used
}

// divide is the division of a decision, made once.
func (s *search) divide(c decision) *division {
	d, ok := s.divisions[c]
	if ok {
		return d
	}
	every := s.m.every()
	d = &division{decision: c, weights: s.m.weights(c.most), beside: s.m.overlaps(c.ragged, c.even),
		exposed: s.m.exposedMs(c.ragged, c.even), collect: s.m.stateIn(every &^ c.even), collects: c.even != every}
	for _, b := range d.beside {
		d.floors, d.lossy = append(d.floors, b.floor()), d.lossy || b.loss > 0
	}
	bytes := s.m.stateIn(c.even)
	for _, k := range s.m.kinds {
		d.fixed = append(d.fixed, part(bytes, k.even))
	}
	if d.collects {
		d.need = TotalPPM
	}
	if c.ragged|c.even == every {
		d.window = s.m.window(c.ragged)
	}
	if c.ragged|c.even != every {
		// every room of a plan, in shares of all this state, is cut off by less than a millionth
		d.need = max(0, d.need-len(s.m.kindOf))
	}
	s.divisions[c] = d
	return d
}

// whole is the division in which all is decided.
func (s *search) whole(ragged classes, kept int) *division {
	return s.divide(decision{ragged, s.m.every() &^ ragged, kept, kept})
}

// appraise works out the values of all options of the pool.
func (s *search) appraise(d *division) {
	if len(d.values) == len(s.pool.list) && d.headroom == s.headroom {
		return
	}
	d.headroom = s.headroom
	if len(d.values) != len(s.pool.list) {
		d.values = make([]int, len(s.pool.list))
	}
	for k, list := range s.pool.byKind {
		for _, id := range list {
			d.values[id] = s.value(d, k, s.pool.list[id])
		}
	}
}

// value of an option: the part of the state to collect that it can hold, in
// parts per million, with even shares and headroom taken off; -1 if it cannot
// be used. If all shares are even there is nothing to collect.
func (s *search) value(d *division, k int, o *option) int {
	if !o.hostFits(d.most) {
		return -1
	}
	share := s.share(d, k, o.roomAt(d.least)-d.headroom, d.headroom)
	if !d.collects {
		return min(share, 0)
	}
	return share
}

// share of the state to collect that a room can hold if so many bytes of it are to stay
// free; -1 if not even the even shares fit.
func (s *search) share(d *division, k int, room, free int64) int {
	most := s.m.kinds[k].mostState - free - d.fixed[k]
	return min(s.m.shareIn(room-d.fixed[k], d.collect, d.window), ppmIn(most, d.collect))
}
