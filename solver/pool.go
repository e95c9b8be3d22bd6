package solver

// pool holds the options of a catalogue that a search can use, by their place
// there. Numbers lie in arrays of their own, since a search reads them millions
// of times.
type pool struct {
	list   []*option
	times  []float64 // option i has times[i*steps : (i+1)*steps]
	brief  []brief
	totals []float64 // an iteration at least, if the device were the slowest
	byKind [][]int32 // batches ascending
}

// brief is what of an option is read most often.
type brief struct {
	room  int64
	batch int
	way   int
}

// wayOf is equal for options of one batch that keep alike, however many units are kept in
// part.
func wayOf(o *option) int {
	way := 2 * o.policy.index()
	if o.partly != nil {
		way++
	}
	return way
}

// fill makes the pool of all options that can be part of an iteration of at
// most limit.
func (s *search) fill(limitMs float64) {
	limitMs -= s.first.exposed
	c := s.catalogue
	c.upTo(limitMs)
	s.pool = pool{list: c.list, times: c.times, brief: c.brief, totals: make([]float64, len(c.list)),
		byKind: make([][]int32, len(c.menus))}
	steps := s.steps
	most, sum := make([]int, len(c.menus)), 0
	for k := range c.menus {
		for i := c.first[k]; i < c.first[k+1]; i++ {
			s.pool.totals[i] = s.alone(c.times[i*steps:][:steps])
			if s.pool.totals[i] <= limitMs {
				most[k] = max(most[k], c.list[i].batch)
			}
		}
		sum += most[k] * len(s.m.kinds[k].ranks)
	}
	for k := range c.menus {
		lowest := s.total - (sum - most[k]) // the others can take no more
		for i := c.first[k]; i < c.first[k+1]; i++ {
			if o := c.list[i]; s.pool.totals[i] <= limitMs && o.batch >= lowest && s.value(s.first, k, o) >= 0 {
				s.pool.byKind[k] = append(s.pool.byKind[k], int32(i))
			}
		}
	}
	for _, d := range s.divisions {
		d.values = nil
	}
}

// keepFree asks every device for so much headroom.
func (s *search) keepFree(headroom int64) {
	s.headroom = headroom
	s.appraise(s.first)
}

// alone is what an iteration would take at least, beside what overlaps with
// nothing, if a device had these times.
func (s *search) alone(times []float64) float64 {
	sum := 0.0
	for d, t := range times {
		sum += s.first.weights[d] * s.first.beside[d].with(t)
	}
	return sum
}

// upperMs is more than any iteration can take.
func (s *search) upperMs() float64 {
	every := s.m.every()
	ms := s.m.exposedMs(every, 0) + s.m.exposedMs(0, every)
	ragged, even := s.m.overlaps(every, 0), s.m.overlaps(0, every)
	over := s.m.problem.MicrobatchOverheadMs
	for d, step := range s.m.steps() {
		most := ragged[d].linkMs + even[d].linkMs
		for _, k := range s.m.kinds {
			// the dearest microbatch, as often as there are samples
			c := k.costs[step.class]
			t := c.ForwardMs.most(s.total) + over.Forward + c.OffloadMsPerSample
			if step.backward {
				t += c.BackwardMs.most(s.total) + over.Backward
			}
			most = max(most, float64(s.total)*t)
		}
		ms += 2 * float64(s.m.problem.Units[step.class].Count) * most
	}
	return ms + 1
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
