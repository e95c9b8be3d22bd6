package solver

// inFlight is how many reductions the runtime has under way; their units' gradients
// are counted with MemoryBytes.
const inFlight = 2

// expected is the peak that a rank's worker reports. Other than what must fit, it counts
// gradients of shards only once their units are reduced, and activations only as long
// as they are there: the peak is that of the worst moment of the backward, or of the
// optimizer's step. 0 if the profile does not say enough.
//
// Units are taken to run class by class in the problem's order.
func (m *model) expected(rank int, a RankAllocation) int64 {
	d, p := m.problem.Devices[rank], m.problem
	for _, u := range p.Units {
		if len(d.Costs[u.Class].FirstMemoryBytes.Points) == 0 {
			return 0
		}
	}
	e := expectation{m: m, d: d, a: a, batch: max(1, a.Batch), micro: a.MicroBatches}
	if a.Batch == 0 {
		e.micro = []int{1} // which weighs nothing
	}
	state, gradients, trained := float64(m.stateHeld(a)), 0.0, 0.0
	for i := range p.Units {
		gradients += e.gradients(i, p.Units[i].Count)
		trained += e.trained(i, p.Units[i].Count)
	}
	outside := 0.0 // as far as it is reported
	if d.CountsOutside {
		outside = float64(d.OutsideBytes)
	}
	steady := float64(d.ReservedBytes-d.OutsideBytes) + outside + state - gradients
	worst := outside + state + trained*p.StepBytesPerParameter
	for class, u := range p.Units {
		for _, done := range [3]int{0, min(a.KeptUnits[u.Class], u.Count-1), u.Count - 1} {
			worst = max(worst, steady+e.moment(class, done))
		}
		worst = max(worst, steady+e.ending(class))
	}
	return wholeBytes(worst)
}

// expectation is one rank with its part of a plan.
type expectation struct {
	m     *model
	d     Device
	a     RankAllocation
	batch int
	micro []int
}

// moment is what is there at the backward of a unit, beside what is there all through:
// so many units of its class, and all of the classes after it, have had theirs.
func (e expectation) moment(class, done int) float64 {
	bytes := e.peak(class, done) + e.around(class, done, false)
	if done > 0 {
		bytes -= e.d.Costs[e.m.problem.Units[class].Class].LastUnitBytes
	}
	return bytes
}

// ending is the moment after that: the unit's compute is over, and the oldest reduction under
// way is added up.
func (e expectation) ending(class int) float64 {
	u := e.m.problem.Units[class]
	return e.d.Costs[u.Class].FirstMemoryBytes.Points[0][1] + e.around(class, 1, true)
}

// around is what units beside the one that is computed hold. ends says that the oldest
// reduction under way is added up.
func (e expectation) around(class, done int, ends bool) float64 {
	p, bytes := e.m.problem, 0.0
	root := p.Units[class].Held
	flying := inFlight
	for i, u := range p.Units {
		switch {
		case i == class:
			bytes += e.kept(i, done)
			bytes += e.reduced(i, done, &flying, ends)
		case u.Held:
			bytes += e.kept(i, 0)
		case i > class || root: // its backward is over
			bytes += e.reduced(i, u.Count, &flying, ends)
		default:
			bytes += e.kept(i, 0)
		}
	}
	return bytes
}

// peak of computing a unit, of the microbatches that it runs.
func (e expectation) peak(class, done int) float64 {
	u := e.m.problem.Units[class]
	c := e.d.Costs[u.Class]
	if u.WholeBatch {
		return c.FirstMemoryBytes.At(e.batch)
	}
	graph := 0.0 // of a sample that is kept: counted with what is kept, and gone once it was used
	if e.policy(u, done) == Keep {
		graph = max(0, c.KeptBytesPerSample[Keep]-c.KeptBytesPerSample[Recompute])
	}
	worst, used := 0.0, 0
	for i := len(e.micro) - 1; i >= 0; i-- { // the backward begins with the last
		memory := c.MemoryBytes
		if used == 0 {
			memory = c.FirstMemoryBytes
		}
		worst = max(worst, memory.At(e.micro[i])-graph*float64(e.micro[i]+used))
		used += e.micro[i]
	}
	return worst
}

// policy of the unit before which so many of its class had their backward.
func (e expectation) policy(u UnitClass, done int) Policy {
	if done < e.a.KeptUnits[u.Class] {
		return Keep
	}
	return e.a.Activations
}

// kept is what the units of a class keep when so many of them had their backward.
func (e expectation) kept(class, done int) float64 {
	u := e.m.problem.Units[class]
	perSample := e.d.Costs[u.Class].KeptBytesPerSample
	whole := max(0, e.a.KeptUnits[u.Class]-done)
	others := u.Count - done - whole
	return float64(e.batch) * (float64(whole)*perSample[Keep] + float64(others)*perSample[e.a.Activations])
}

// reduced is what the gradients of units weigh that were reduced, and what the reductions
// still under way bring beyond what is counted with MemoryBytes.
func (e expectation) reduced(class, units int, flying *int, ends bool) float64 {
	under := min(*flying, units)
	*flying -= under
	over := units - under
	if ends && under > 0 && *flying == 0 {
		over++
	}
	return e.gradients(class, over) + e.arriving(class, under)
}

// arriving is what reductions under way bring beyond that of even shares; below 0 for a
// smaller share.
func (e expectation) arriving(class, units int) float64 {
	u := e.m.problem.Units[class]
	beyond := e.share(class)*float64(len(e.m.kindOf)) - 1
	return float64(units) * float64(u.ReceivedBytes) * beyond
}

// share of a class's state that the rank has.
func (e expectation) share(class int) float64 {
	ppm, named := e.a.ClassStatePPM[e.m.problem.Units[class].Class]
	if !named {
		ppm = e.a.StatePPM
	}
	return float64(ppm) / TotalPPM
}

// gradients of so many units, in the rank's share.
func (e expectation) gradients(class, units int) float64 {
	return e.trained(class, units) * e.m.problem.GradientBytesPerParameter
}

// trained parameters of so many units, in the rank's share.
func (e expectation) trained(class, units int) float64 {
	return float64(units) * float64(e.m.problem.Units[class].TrainableParameters) * e.share(class)
}
