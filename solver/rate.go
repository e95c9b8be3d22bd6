package solver

// ceiling is the largest batch up to most that can take at most limit: no cut
// is faster per sample than the fastest microbatch size.
func (u *menu) ceiling(limit float64, most int) int {
	lo, hi := 0, most+1 // even lo may exceed the limit: then no batch fits
	for lo+1 < hi {
		if mid := (lo + hi) / 2; u.least(mid) <= limit {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// least bounds the time of a batch from below; it never falls as batch grows.
func (u *menu) least(batch int) float64 {
	sum := 0.0
	for d, rate := range u.rates {
		sum += u.weights[d] * u.beside[d].with(rate*float64(batch))
	}
	return sum * (1 - 1e-9) // rounding must not make it more than a true cost
}

// ratesOf are the smallest times per sample, by step.
func ratesOf(m *model, k *kind) []float64 {
	var rates []float64
	for _, s := range m.steps() {
		c := k.costs[s.class]
		rate := c.ForwardMs.leastPerSample(m.problem.GlobalBatch)
		if s.backward {
			again := rate
			rate = c.BackwardMs.leastPerSample(m.problem.GlobalBatch)
			if m.policies[0] != Keep && !m.problem.Units[s.class].WholeBatch {
				rate += again
			}
		}
		rates = append(rates, rate)
	}
	return rates
}

// leastPerSample is the least of At(s)/s for s from 1 to most. Between points
// and on the tail the ratio is monotone, so the ends are enough.
func (c Cost) leastPerSample(most int) float64 {
	least := min(c.At(1), c.At(most)/float64(most))
	try := func(s int) {
		if s >= 1 && s <= most {
			least = min(least, c.At(s)/float64(s))
		}
	}
	for _, p := range c.Points {
		try(int(p[0]))
	}
	try(c.last() + 1)
	return least
}
