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
}

// StepPrediction is one pass over the units of a class.
type StepPrediction struct {
	Class    string
	Backward bool
	// UnitMs is the time of one unit: of the slowest rank, or of the link.
	UnitMs float64
	// TotalMs is the time of all units of the class.
	TotalMs float64
	// LinkMs is what the collectives of one unit take.
	LinkMs float64
	// Rank is the slowest rank, -1 if the link binds.
	Rank int
}

// RankLoad is what one rank computes in an iteration, and where its memory goes.
type RankLoad struct {
	ForwardMs, BackwardMs float64
	ReservedBytes         int64
	PeakBytes             int64
	KeptBytes             int64
	StateBytes            int64
	HostBytes             int64
	UsableBytes           int64
}

// MemoryBytes is the peak of the rank.
func (r RankLoad) MemoryBytes() int64 {
	return r.ReservedBytes + r.PeakBytes + r.KeptBytes + r.StateBytes
}

// HeadroomBytes is what stays free; negative if the rank does not fit.
func (r RankLoad) HeadroomBytes() int64 { return r.UsableBytes - r.MemoryBytes() }

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
	floors, weights := m.floors(ragged, m.every()&^ragged), m.weights()
	out := Prediction{ExposedMs: m.exposedMs(ragged, m.every()&^ragged), Ranks: make([]RankLoad, len(a.Ranks))}
	for d := range floors {
		out.Steps = append(out.Steps, StepPrediction{
			Class: m.problem.Units[d/2].Class, Backward: d%2 == 1, LinkMs: floors[d], Rank: -1,
		})
	}
	longest := slices.Clone(floors)
	for _, lap := range lapsOf(a) {
		times := float64(lap.times)
		slowest := slices.Clone(floors)
		for i, r := range a.Ranks {
			l := m.loadOf(m.kinds[m.kindOf[i]], lap.batches[i], lap.cuts[i], r.Activations)
			out.Ranks[i].add(l, weights, times)
			for d, t := range l.times {
				slowest[d] = max(slowest[d], t)
				if t > longest[d] {
					longest[d], out.Steps[d].Rank = t, i
				}
			}
		}
		for d := range slowest {
			out.Steps[d].UnitMs += times * slowest[d]
			out.Steps[d].TotalMs += times * slowest[d] * weights[d]
		}
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

func (r *RankLoad) add(l load, weights []float64, times float64) {
	for d, t := range l.times {
		if d%2 == 0 {
			r.ForwardMs += times * t * weights[d]
		} else {
			r.BackwardMs += times * t * weights[d]
		}
	}
	r.PeakBytes = max(r.PeakBytes, l.peakBytes)
	r.KeptBytes = max(r.KeptBytes, l.keptBytes)
	r.HostBytes = max(r.HostBytes, l.hostBytes)
}

// weigh fills in the memory of every rank and says who does not fit.
func (m *model) weigh(out *Prediction, a Allocation) error {
	worst, missing := -1, int64(0)
	for i := range out.Ranks {
		r, d := &out.Ranks[i], m.problem.Devices[i]
		r.ReservedBytes, r.UsableBytes = d.ReservedBytes, d.UsableMemoryBytes
		r.StateBytes = m.stateHeld(a.Ranks[i])
		lack := -r.HeadroomBytes()
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
