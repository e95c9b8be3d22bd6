package solver

// peak is what computing a microbatch takes at most, beside what is kept between
// forward and backward.
func (c *ClassCost) peak(policy Policy) Cost {
	if policy == Keep {
		return c.keptPeak
	}
	return c.MemoryBytes
}

// withoutKept is the peak of a unit whose activations are kept. MemoryBytes holds
// those of the microbatch that is computed, and so do the kept bytes; they are there
// once. What they leave never falls with the microbatch beyond the last point.
func (c *ClassCost) withoutKept() Cost {
	twice := max(0, c.KeptBytesPerSample[Keep]-c.KeptBytesPerSample[Recompute])
	out := Cost{Tail: c.MemoryBytes.Tail}
	last, value := 0.0, 0.0
	for _, p := range c.MemoryBytes.Points {
		last, value = p[0], max(0, p[1]-twice*p[0])
		out.Points = append(out.Points, [2]float64{last, value})
	}
	out.Tail.Slope = max(0, out.Tail.Slope-twice)
	out.Tail.Intercept = max(out.Tail.Intercept, value-out.Tail.Slope*last)
	return out
}
