package solver

import "slices"

// Prediction is what an allocation costs.
type Prediction struct {
	IterationMs      float64
	SamplesPerSecond float64
	// ExposedMs is the part that overlaps with nothing.
	ExposedMs float64
	Steps     []StepPrediction
	Ranks     []RankLoad
	parts     []passPart
}

// StepPrediction is one pass over the units of a class.
type StepPrediction struct {
	Class    string
	Backward bool
	// UnitMs is the time of one unit, in the mean over the units: of the slowest
	// rank, or of the link.
	UnitMs float64
	// TotalMs is the time of all units of the class.
	TotalMs float64
	// LinkMs is what the collectives of one unit take.
	LinkMs float64
	// Rank is the slowest rank over most of the time, -1 if the link binds.
	Rank int

	longestMs float64 // of units that every rank treats alike
}

// passPart are units that every rank treats alike, in one step: the last kept
// ones but those that other parts have.
type passPart struct {
	step, kept int
	units      float64 // so many
	unitMs     float64
	rank       int // the slowest, -1 if the link binds
}

// RankLoad is what one rank computes in an iteration, and where its memory goes.
type RankLoad struct {
	ForwardMs, BackwardMs float64
	ReservedBytes         int64
	PeakBytes             int64
	KeptBytes             int64
	StateBytes            int64
	// TransitBytes is what arrives in reductions for a share above the even one.
	TransitBytes int64
	HostBytes    int64
	UsableBytes  int64
	// MostStateBytes bounds the state, so that the optimizer's step has room beside it.
	MostStateBytes int64
	// ExpectedBytes is the peak that the worker will report; 0 if it is not known.
	ExpectedBytes int64
}

// MemoryBytes is the peak of the rank.
func (r RankLoad) MemoryBytes() int64 {
	return r.ReservedBytes + r.PeakBytes + r.KeptBytes + r.StateBytes + r.TransitBytes
}

// HeadroomBytes is what stays free; negative if the rank does not fit.
func (r RankLoad) HeadroomBytes() int64 {
	return min(r.UsableBytes-r.MemoryBytes(), r.MostStateBytes-r.StateBytes)
}

// Evaluate predicts an allocation. If it does not fit, the prediction is
// returned together with an *InfeasibleError.
func Evaluate(p Problem, a Allocation) (Prediction, error) {
	m, err := newModel(p)
	if err != nil {
		return Prediction{}, err
	}
	return m.evaluate(a)
}

func (m *model) evaluate(a Allocation) (Prediction, error) {
	if err := a.validate(m.problem); err != nil {
		return Prediction{}, err
	}
	ragged := m.raggedIn(a)
	beside, weights := m.overlaps(ragged, m.every()&^ragged), m.weights(0)
	out := Prediction{ExposedMs: m.exposedMs(ragged, m.every()&^ragged), Ranks: make([]RankLoad, len(a.Ranks))}
	for d, b := range beside {
		out.Steps = append(out.Steps, StepPrediction{
			Class: m.problem.Units[d/2].Class, Backward: d%2 == 1, LinkMs: b.linkMs, Rank: -1,
		})
	}
	laps := lapsOf(a)
	for at, lap := range laps {
		again := lap.times
		if at == 0 {
			again-- // the first is counted
		}
		out.ExposedMs += float64(again) * m.heldMs(ragged, m.every()&^ragged)
		loads := make([]load, len(a.Ranks))
		for i, r := range a.Ranks {
			loads[i] = m.loadWith(m.kinds[m.kindOf[i]], lap.batches[i], lap.cuts[i], r.Activations, r.KeptUnits)
			out.Ranks[i].add(loads[i])
		}
		for d, b := range beside {
			m.pass(&out, a, d, lap.times, b, loads)
		}
	}
	for d := range out.Steps {
		s := &out.Steps[d]
		s.UnitMs = s.TotalMs / weights[d]
	}
	for _, s := range out.Steps {
		out.IterationMs += s.TotalMs
	}
	out.IterationMs += out.ExposedMs
	if out.IterationMs > 0 {
		out.SamplesPerSecond = float64(m.problem.GlobalBatch) * 1000 / out.IterationMs
	}
	return out, m.weigh(&out, a)
}

// lap is one pass through the model and back, by rank, and how often it is run
// in a row.
type lap struct {
	batches []int
	cuts    [][]cut
	times   int
}

// lapsOf is one lap under layered accumulation; under ordinary accumulation
// every microbatch is a lap, and laps of equal sizes are counted.
func lapsOf(a Allocation) []lap {
	var laps []lap
	rounds := 1
	for _, r := range a.Ranks {
		if a.Ordinary {
			rounds = max(rounds, len(r.MicroBatches))
		}
	}
	for round := range rounds {
		next := lap{times: 1}
		for _, r := range a.Ranks {
			batch, micro := r.Batch, r.MicroBatches
			if a.Ordinary {
				batch, micro = 0, nil
				if round < len(r.MicroBatches) {
					batch, micro = r.MicroBatches[round], r.MicroBatches[round:round+1]
				}
			}
			next.batches = append(next.batches, batch)
			next.cuts = append(next.cuts, cutsOf(micro))
		}
		if n := len(laps); n > 0 && slices.Equal(laps[n-1].batches, next.batches) {
			laps[n-1].times++
			continue
		}
		laps = append(laps, next)
	}
	return laps
}

// add makes room for what one lap needs.
func (r *RankLoad) add(l load) {
	r.PeakBytes = max(r.PeakBytes, l.peakBytes)
	r.KeptBytes = max(r.KeptBytes, l.keptBytes)
	r.HostBytes = max(r.HostBytes, l.hostBytes)
}

// pass runs one step over all units of its class. Units that every rank treats
// alike take the same time: that of the slowest rank, or of the collectives.
func (m *model) pass(out *Prediction, a Allocation, d, laps int, beside overlap, loads []load) {
	step, count := &out.Steps[d], m.problem.Units[d/2].Count
	kept := func(rank int) int { return a.Ranks[rank].KeptUnits[step.Class] }
	ends := []int{count} // counted from the last unit
	for i := range loads {
		ends = append(ends, kept(i))
	}
	slices.Sort(ends)
	from := 0
	for _, end := range slices.Compact(ends) {
		if end == 0 {
			continue
		}
		times, units := beside.linkMs, float64(laps*(end-from))
		part := passPart{step: d, kept: end, units: units, unitMs: beside.linkMs, rank: -1}
		for i, l := range loads {
			t := l.times[d]
			if kept(i) >= end {
				t = l.keeping[d]
			}
			if both := beside.with(t); both > times {
				times, part.unitMs, part.rank = both, both, i
				if t <= beside.linkMs {
					part.rank = -1
				}
			}
			if d%2 == 0 {
				out.Ranks[i].ForwardMs += t * units
			} else {
				out.Ranks[i].BackwardMs += t * units
			}
		}
		out.parts = append(out.parts, part)
		step.TotalMs += units * times
		if units*times > step.longestMs {
			step.longestMs, step.Rank = units*times, part.rank
		}
		from = end
	}
}

// weigh fills in the memory of every rank and says who does not fit.
func (m *model) weigh(out *Prediction, a Allocation) error {
	worst, missing := -1, int64(0)
	for i := range out.Ranks {
		r, d := &out.Ranks[i], m.problem.Devices[i]
		r.ReservedBytes, r.UsableBytes = d.ReservedBytes, d.UsableMemoryBytes
		r.StateBytes = m.stateHeld(a.Ranks[i])
		r.TransitBytes = m.transitOf(i, a.Ranks[i])
		r.MostStateBytes = m.kinds[m.kindOf[i]].mostState
		if !a.Ordinary {
			r.ExpectedBytes = m.expected(i, a.Ranks[i])
		}
		lack := max(r.MemoryBytes()-r.UsableBytes, m.problem.memoryFor(r.StateBytes-r.MostStateBytes))
		if d.HostMemoryBytes > 0 {
			lack = max(lack, r.HostBytes-d.HostMemoryBytes)
		}
		if lack > missing {
			worst, missing = i, lack
		}
	}
	if worst < 0 {
		return nil
	}
	return m.lacking(worst, missing, out.Ranks[worst], a.Ranks[worst])
}
