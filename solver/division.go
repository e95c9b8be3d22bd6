package solver

import "math/bits"

// division says which classes have ragged shares and which have even ones; the
// others are open, and cost and need as little as either would.
type division struct {
	ragged, even classes
	floors       []float64
	exposed      float64 // beside what overlaps with it
	fixed        []int64 // by kind: the even shares
	collect      int64   // the state that all rooms together must hold
	collects     bool
	need         int // what values must sum to
	headroom     int64
	values       []int // of the pool's options, -1 if one cannot be used
}

// divide is the division of two sets, made once.
func (s *search) divide(ragged, even classes) *division {
	key := [2]classes{ragged, even}
	d, ok := s.divisions[key]
	if !ok {
		d = &division{ragged: ragged, even: even, floors: s.m.floors(ragged, even), exposed: s.m.exposedMs(ragged, even),
			collect: s.m.stateIn(s.m.every() &^ even)}
		bytes := s.m.stateIn(even)
		for _, k := range s.m.kinds {
			d.fixed = append(d.fixed, part(bytes, k.even))
		}
		if even != s.m.every() {
			d.need = TotalPPM
		}
		if ragged|even != s.m.every() {
			// every room of a plan, in shares of all this state, is cut off by less than a millionth
			d.need = max(0, d.need-len(s.m.kindOf))
		}
		d.collects = even != s.m.every()
		s.divisions[key] = d
	}
	return d
}

// whole is the division in which every class has chosen.
func (s *search) whole(ragged classes) *division { return s.divide(ragged, s.m.every()&^ragged) }

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
			d.values[id] = d.value(k, s.pool.list[id])
		}
	}
}

// value of an option: the part of the state to collect that it can hold, in
// parts per million, with even shares and headroom taken off; -1 if it cannot
// be used. If all shares are even there is nothing to collect.
func (d *division) value(k int, o *option) int {
	room := o.room - d.fixed[k] - d.headroom
	if d.collects {
		return ppmIn(room, d.collect)
	}
	if room < 0 {
		return -1
	}
	return 0
}

// settled is the fastest way to decide what the node has open such that the
// picks fit, if it is below the limit. Of equals the one with the fewest ragged
// classes is taken.
func (s *search) settled(n *node) (ragged classes, ms float64, ok bool) {
	open := s.m.every() &^ n.split.ragged &^ n.split.even
	most := s.reached(n.split)
	ms = s.limit
	for choice := range 1 << len(s.choosers) {
		set := n.split.ragged
		for i, c := range s.choosers {
			if choice>>i&1 == 1 {
				set |= c
			}
		}
		if set&^n.split.ragged&^open != 0 || s.mustRag && set == 0 || ok && bits.OnesCount32(uint32(set)) >= bits.OnesCount32(uint32(ragged)) && s.over(set, most) >= ms {
			continue
		}
		t := s.over(set, most)
		if t > ms || !ok && t >= ms || !s.holds(set) {
			continue
		}
		ragged, ms, ok = set, t, true
	}
	return ragged, ms, ok
}

// over is the iteration if steps take as long as that and these classes are
// ragged.
func (s *search) over(ragged classes, most []float64) float64 {
	whole := s.whole(ragged)
	sum := whole.exposed
	for d, floor := range whole.floors {
		sum += s.weights[d] * max(floor, most[d])
	}
	return sum
}

// holds says that the picks have room for the state if these classes are
// ragged.
func (s *search) holds(ragged classes) bool {
	d, sum := s.whole(ragged), 0
	for k, list := range s.sack.picks {
		for _, c := range list {
			v := d.value(k, s.pool.list[s.sack.groups[k].choices[c].source])
			if v < 0 {
				return false
			}
			sum += v
		}
	}
	return sum >= d.need
}

// undecided is the open class whose collectives would cost most by being
// ragged; of equals the one with the most state.
func (s *search) undecided(n *node) (classes, bool) {
	var best classes
	most, found := 0.0, false
	reached := s.reached(n.split)
	for _, c := range s.choosers {
		if c&(n.split.ragged|n.split.even) != 0 {
			continue
		}
		if ms := s.over(n.split.ragged|c, reached); !found || ms > most {
			best, most, found = c, ms, true
		}
	}
	return best, found
}
