package solver

import "math"

// start finds picks below the cutoff, not yet the fastest, and a time that none
// beats. It returns false if there are none.
func (s *search) start(cutoff float64) bool {
	upper := min(s.upperMs(), cutoff)
	lower := (s.catalogue.lowerMs() + s.first.exposed) * (1 - tolerance)
	s.lowMs = lower
	grow, fits := 1.05, false
	for {
		try := min(max(lower*grow, upper*1e-9), upper)
		try = min(upper, max(try, s.catalogue.known()+s.first.exposed))
		s.fill(try)
		s.limit = math.Inf(1)
		found := s.bisect(lower, try, cutoff)
		if found && (min(s.bestMs, cutoff) < math.Inf(1) || try >= upper) {
			s.upper = upper
			return true
		}
		if try >= upper || !found && !fits && !s.m.canFit(s.first.even, s.total) {
			return false
		}
		fits = true
		lower, grow = try, min(grow*grow*1.2, 1e3)
	}
}

// finish finds the fastest picks below the cutoff, if there are any.
func (s *search) finish(cutoff float64) bool {
	if s.lowMs >= cutoff {
		return false
	}
	s.improve = s.faster
	s.limit = min(s.bestMs, cutoff) * (1 - tolerance)
	s.fill(min(s.bestMs, cutoff, s.upper) * (1 + tolerance)) // enough for settle too
	s.last = s.m.boxes
	s.explore(s.root())
	return s.bestMs < cutoff
}

// bisect looks for picks of which no device alone takes more than high, and
// of those for nearly the smallest bound that has any.
func (s *search) bisect(low, high, cutoff float64) bool {
	try := func(limit float64) bool {
		s.limit = limit * (1 + tolerance)
		n := s.root()
		ok := s.pick(n)
		if ok {
			s.limit = min(s.bestMs, cutoff)
			s.faster(n)
		}
		return ok
	}
	if !try(high) {
		return false
	}
	for high-low > 0.001*high && !(s.m.hasty && s.bestMs < cutoff) {
		if mid := (low + high) / 2; try(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	s.lowMs = low
	return true
}
