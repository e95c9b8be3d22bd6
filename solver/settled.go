package solver

import "math/bits"

// settled is the fastest way to decide what the node has open such that the
// picks fit, if it is below the limit. Of equals the one with the fewest ragged
// classes is taken, and of these the one that keeps most.
func (s *search) settled(n *node) (best *division, ms float64) {
	reached := s.reached(n.split)
	ms = s.limit
	for choice := range 1 << len(s.choosers) {
		ragged := n.split.ragged
		for i, c := range s.choosers {
			if choice>>i&1 == 1 {
				ragged |= c
			}
		}
		if ragged&n.split.even != 0 || s.mustRag && ragged == 0 {
			continue
		}
		for kept := n.split.most; kept >= n.split.least; kept-- { // the more are kept, the faster it is
			d := s.whole(ragged, kept)
			t := s.over(d, reached)
			simpler := best == nil || bits.OnesCount32(uint32(ragged)) < bits.OnesCount32(uint32(best.ragged))
			if t > ms || t == ms && (best == nil || !simpler) {
				break
			}
			if s.holds(d) {
				best, ms = d, t
				break
			}
		}
	}
	return best, ms
}

// over is the iteration if steps take as long as that.
func (s *search) over(d *division, most []float64) float64 {
	sum := d.exposed
	for i, b := range d.beside {
		sum += d.weights[i] * b.with(most[i])
	}
	return sum
}

// holds says that the picks have room for the state.
func (s *search) holds(d *division) bool {
	d.headroom = s.headroom
	sum := 0
	for k, list := range s.sack.picks {
		for _, c := range list {
			v := s.value(d, k, s.pool.list[s.sack.groups[k].choices[c].source])
			if v < 0 {
				return false
			}
			sum += v
		}
	}
	return sum >= d.need
}

// halves are the two sides of what the node leaves open and would cost most: a
// class with even or with ragged shares, or many or few units kept in part. ok
// is false if nothing is open.
func (s *search) halves(n *node) (first, second decision, ok bool) {
	reached := s.reached(n.split)
	most := -1.0
	for _, c := range s.choosers {
		if c&(n.split.ragged|n.split.even) != 0 {
			continue
		}
		even, ragged := n.split.decision, n.split.decision
		even.even |= c
		ragged.ragged |= c
		if ms := s.over(s.divide(ragged), reached); ms > most {
			first, second, most, ok = even, ragged, ms, true
		}
	}
	if n.split.least == n.split.most {
		return first, second, ok
	}
	many, few, least := n.split.decision, n.split.decision, n.split.decision
	few.most = (few.least + few.most) / 2
	many.least = few.most + 1
	least.most = least.least
	if ms := s.over(s.divide(least), reached); ms > most {
		first, second, ok = many, few, true
	}
	return first, second, ok
}
