package solver

import "math"

// fill makes the pool of all options that can be part of an iteration of at
// most limit.
func (s *search) fill(limit float64) {
	limit -= s.exposed
	ceilings, sum := make([]int, len(s.menus)), 0
	for k, u := range s.menus {
		ceilings[k] = u.ceiling(limit, s.total)
		if u.k.fixed >= 0 {
			ceilings[k] = u.k.fixed
		}
		sum += ceilings[k] * len(u.k.ranks)
	}
	s.pool = make([][]*option, len(s.menus))
	for k, u := range s.menus {
		least, _ := s.m.batchRange(u.k, s.total)
		lowest := max(least, s.total-(sum-ceilings[k])) // the others can take no more
		for b := lowest; b <= ceilings[k]; b++ {
			for _, o := range u.of(b, limit) {
				o.total = u.total(o.times)
				if s.shares == EvenShares {
					o.room -= s.m.stateOf(u.k.even)
				}
				if o.value = s.valueOf(&o, 0); o.value >= 0 {
					s.pool[k] = append(s.pool[k], &o)
				}
			}
		}
	}
}

// lowerMs bounds an iteration from below by the fastest rates alone.
func (s *search) lowerMs() float64 {
	enough := func(limit float64) bool {
		sum := 0
		for _, u := range s.menus {
			sum += u.ceiling(limit, s.total) * len(u.k.ranks)
			if sum >= s.total {
				return true
			}
		}
		return false
	}
	lo, hi := 0.0, 0.0
	for _, u := range s.menus {
		hi = max(hi, u.least(s.total))
	}
	for range 50 {
		if mid := (lo + hi) / 2; enough(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo + s.exposed
}

// upperMs is more than any iteration can take.
func (s *search) upperMs() float64 {
	sum := make([]float64, len(s.floors))
	for _, u := range s.menus {
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

// run finds the fastest picks below a cutoff, if there are any.
func (s *search) run(cutoff float64) bool {
	upper := min(s.upperMs(), cutoff)
	lower := s.lowerMs() * (1 - tolerance)
	grow, fits := 1.05, false
	for {
		try := min(max(lower*grow, upper*1e-9), upper)
		s.fill(try)
		s.limit = math.Inf(1)
		if s.bisect(lower, try, cutoff) {
			break
		}
		if try >= upper || !fits && !s.m.canFit(s.shares, s.total) {
			return false
		}
		fits = true
		lower, grow = try, min(grow*grow*1.2, 1e3)
	}
	s.improve = s.faster
	s.limit = min(s.bestMs, cutoff) * (1 - tolerance)
	s.fill(s.limit)
	s.last = s.m.boxes
	s.explore(s.root())
	return s.bestMs < cutoff
}

// bisect looks for picks of which no device alone takes more than high, and
// of those for nearly the smallest bound that has any.
func (s *search) bisect(low, high, cutoff float64) bool {
	try := func(limit float64) bool {
		s.limit = limit * (1 + tolerance)
		picks, ok := s.pick(s.root())
		if ok {
			reached := s.reached(picks)
			if ms := s.timeOver(reached, reached); ms < min(s.bestMs, cutoff) {
				s.best, s.bestMs = picks, ms
			}
		}
		return ok
	}
	if !try(high) {
		return false
	}
	for high-low > 0.001*high {
		if mid := (low + high) / 2; try(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	s.lowMs = low
	return true
}
