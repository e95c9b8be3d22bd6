package solver

import "slices"

// Where a script is run, a rank without samples is shown one that weighs nothing, since its
// script does not know of such a thing. It takes what one sample takes: the times, and for
// every policy the peak beside what all units keep for it. Rounded as one sample would be, it
// needs to the byte what a batch of one needs.

// shownOne gives the costs of a device without samples those of one.
func shownOne(units []UnitClass, costs []ClassCost) {
	keep, recompute := keptForOne(units, costs, Keep), keptForOne(units, costs, Recompute)
	for i := range costs {
		c := &costs[i]
		c.ForwardMs = c.ForwardMs.withNone(c.ForwardMs.At(1))
		c.BackwardMs = c.BackwardMs.withNone(c.BackwardMs.At(1))
		// Offloading takes no more than recomputing, and gains nothing over it for one sample.
		c.MemoryBytes = c.MemoryBytes.withNone(float64(wholeBytes(c.MemoryBytes.At(1)) + recompute))
		c.keptPeak = c.keptPeak.withNone(float64(wholeBytes(c.keptPeak.At(1)) + keep))
	}
}

// keptForOne is what all units keep of one sample between forward and backward.
func keptForOne(units []UnitClass, costs []ClassCost, policy Policy) int64 {
	bytes := 0.0
	for i, u := range units {
		bytes += float64(u.Count) * costs[i].kept[policy.index()]
	}
	return wholeBytes(bytes)
}

// withNone is the cost with a value for no sample; that of one sample and more stays.
func (c Cost) withNone(value float64) Cost {
	points := [][2]float64{{0, value}}
	if len(c.Points) > 0 {
		points = append(points, [2]float64{1, c.At(1)})
	}
	for _, p := range c.Points {
		if p[0] > 1 {
			points = append(points, p)
		}
	}
	c.Points = points
	return c
}

// prefersAll says that every rank is to have a sample if any plan that fits gives each one:
// a rank without is shown one all the same, so it gains nothing, and that sample is in the
// numbers that the script adds up by itself.
func (p Problem) prefersAll() bool {
	return p.ShownOne && !p.UseAll && p.FixedBatches == nil && p.GlobalBatch >= len(p.Devices)
}

// withAll is the problem with at least one sample for every rank.
func (p Problem) withAll() Problem {
	p.UseAll = true
	return p
}

// hasIdle says that some rank has no samples.
func (a Allocation) hasIdle() bool {
	return slices.ContainsFunc(a.Ranks, func(r RankAllocation) bool { return r.Batch == 0 })
}
