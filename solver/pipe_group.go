package solver

// team is a group of ranks that runs its units by tensor parallelism: every
// rank holds 1/n of each unit.
type team []int

// unitCost is what one unit of a class costs a team with one microbatch.
type unitCost struct {
	forward, backward float64 // of the team, all-reduces included
	compute           float64 // of both passes, without them
	state             float64 // bytes on each rank
	kept              float64 // bytes of a microbatch between the passes, on each rank
	peak              float64 // bytes while computing, without the gathered unit
}

// teamCosts are the costs of every class. A team is as fast as its slowest
// rank times its number; two all-reduces of the unit's output each way are
// added (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
func (m *model) teamCosts(t team, micro int, policy Policy) []unitCost {
	out := make([]unitCost, len(m.problem.Units))
	n := float64(len(t))
	frozen := m.problem.FrozenBytesPerParameter
	if frozen == 0 {
		frozen = 4
	}
	for i, u := range m.problem.Units {
		c := &out[i]
		for _, rank := range t {
			cost := m.kinds[m.kindOf[rank]].costs[i]
			c.forward = max(c.forward, cost.ForwardMs.At(micro)/n)
			c.backward = max(c.backward, cost.BackwardMs.At(micro)/n)
			c.kept = max(c.kept, cost.KeptBytesPerSample[policy]*float64(micro)/n)
			c.peak = max(c.peak, cost.MemoryBytes.above(micro)/n)
		}
		trainable := float64(u.TrainableParameters)
		c.state = (trainable*m.problem.StateBytesPerParameter + (float64(u.Parameters)-trainable)*frozen) / n
		reduce := 0.0
		if len(t) > 1 {
			reduce = 2 * m.ringMs(m.boundaryBytes(i)*float64(micro), t...)
		}
		c.compute = c.forward + c.backward
		again := policy != Keep && !u.WholeBatch
		if again {
			c.compute += c.forward
		}
		c.forward += reduce
		c.backward += reduce
		if again {
			c.backward += c.forward
		}
	}
	return out
}

// above is the part of a memory cost that grows with the samples; the rest is
// the gathered unit and its gradients, which a pipeline counts as state.
func (c Cost) above(m int) float64 {
	fixed := c.Tail.Intercept
	if len(c.Points) > 0 {
		fixed = min(fixed, c.Points[0][1])
	}
	return max(0, c.At(m)-max(0, fixed))
}
