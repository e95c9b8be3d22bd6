package solver

// shelf holds options and their times in few large pieces, since a menu makes thousands.
type shelf struct {
	options []option
	times   []float64
}

const shelfSize = 64

// keep is the option's own copy.
func (s *shelf) keep(o option) *option {
	if len(s.options) == 0 {
		s.options = make([]option, shelfSize)
	}
	n := len(o.times)
	if len(s.times) < n {
		s.times = make([]float64, shelfSize*n)
	}
	kept, times := &s.options[0], s.times[:n:n]
	s.options, s.times = s.options[1:], s.times[n:]
	copy(times, o.times)
	o.times = times
	*kept = o
	return kept
}
