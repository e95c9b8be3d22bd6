package solver

// pool holds the options of all kinds, one kind after the other, batches
// ascending. Their numbers lie in arrays of their own, since a search reads
// them millions of times.
type pool struct {
	list   []option
	times  []float64 // option i has times[i*steps : (i+1)*steps]
	values []int     // what each is worth at the headroom of the search, -1 if it cannot be used
	byKind [][]int32
}

// fill makes the pool of all options that can be part of an iteration of at
// most limit.
func (s *search) fill(limitMs float64) {
	s.pool = pool{byKind: make([][]int32, len(s.catalogue.menus))}
	limitMs -= s.exposed
	s.catalogue.upTo(limitMs)
	most, sum := make([]int, len(s.pool.byKind)), 0
	for k, list := range s.catalogue.byKind {
		for i := range list {
			if o := &list[i]; o.batch > most[k] && s.alone(o.times) <= limitMs {
				most[k] = o.batch
			}
		}
		sum += most[k] * len(s.m.kinds[k].ranks)
	}
	for k, list := range s.catalogue.byKind {
		for _, o := range list {
			o.total = s.alone(o.times)
			if o.total > limitMs || o.batch < s.total-(sum-most[k]) { // the others can take no more
				continue
			}
			if s.shares == EvenShares {
				o.room -= s.m.stateOf(s.m.kinds[k].even)
			}
			if s.valueOf(&o, 0) >= 0 {
				s.pool.add(k, o)
			}
		}
	}
	s.pool.gather()
	s.keepFree(s.headroom)
}

// alone is what an iteration would take at least, beside what overlaps with
// nothing, if a device had these times.
func (s *search) alone(times []float64) float64 {
	sum := 0.0
	for d, t := range times {
		sum += s.weights[d] * max(t, s.floors[d])
	}
	return sum
}

func (p *pool) add(k int, o option) {
	p.byKind[k] = append(p.byKind[k], int32(len(p.list)))
	p.list = append(p.list, o)
}

// gather lays the times of all options one after another.
func (p *pool) gather() {
	for i := range p.list {
		p.times = append(p.times, p.list[i].times...)
	}
	for i := range p.list { // only now, since the array moves when it grows
		n := len(p.list[i].times)
		p.list[i].times = p.times[i*n : (i+1)*n : (i+1)*n]
	}
}

// keepFree asks every device for so much headroom.
func (s *search) keepFree(headroom int64) {
	s.headroom = headroom
	s.pool.values = s.pool.values[:0]
	for i := range s.pool.list {
		s.pool.values = append(s.pool.values, s.valueOf(&s.pool.list[i], headroom))
	}
}

// valueOf is the state that an option can hold, in parts per million, with the
// headroom kept free; -1 if it cannot be used. Even shares are already taken
// off the room, and there is nothing to collect.
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

// upperMs is more than any iteration can take.
func (s *search) upperMs() float64 {
	sum := make([]float64, len(s.floors))
	for _, u := range s.catalogue.menus {
		for i, c := range u.k.costs {
			// the dearest microbatch, as often as there are samples
			f, w := c.ForwardMs.most(s.total), c.BackwardMs.most(s.total)
			n := float64(s.total)
			over := s.m.problem.MicrobatchOverheadMs
			sum[2*i] = max(sum[2*i], n*(f+over.Forward+c.OffloadMsPerSample))
			sum[2*i+1] = max(sum[2*i+1], n*(f+w+over.Backward+c.OffloadMsPerSample))
		}
	}
	return 2*s.timeOver(sum, s.floors) + 1
}

// most is the largest cost of 0 to n samples.
func (c Cost) most(n int) float64 {
	v := max(c.At(0), c.At(n), c.At(1))
	for _, p := range c.Points {
		if int(p[0]) <= n {
			v = max(v, p[1])
		}
	}
	if c.last() < n {
		v = max(v, c.At(c.last()+1))
	}
	return v
}
