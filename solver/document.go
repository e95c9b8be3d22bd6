package solver

import "math"

// plan is the document for an allocation that fits.
func (m *model) plan(strategy string, a Allocation) (Plan, error) {
	predicted, err := m.evaluate(a)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Version: PlanVersion, Strategy: strategy, Profile: m.problem.Profile,
		GlobalBatch: m.problem.GlobalBatch, Shares: a.Shares, Alternatives: []Alternative{}}
	for i, r := range a.Ranks {
		load := predicted.Ranks[i]
		micro := r.MicroBatches
		if micro == nil {
			micro = []int{}
		}
		p.Ranks = append(p.Ranks, RankPlan{
			Rank: i, Device: identity(m.problem.Devices[i]), Batch: r.Batch, MicroBatches: micro,
			StatePPM: r.StatePPM, ClassStatePPM: r.ClassStatePPM, Activations: r.Activations, KeptUnits: r.KeptUnits,
			Predicted: RankPrediction{ForwardMs: tidy(load.ForwardMs), BackwardMs: tidy(load.BackwardMs),
				MemoryBytes: load.MemoryBytes(), UsableMemoryBytes: load.UsableBytes, PeakMemoryBytes: load.ExpectedBytes},
		})
	}
	p.Predicted = PlanPrediction{IterationMs: tidy(predicted.IterationMs), SamplesPerSecond: tidy(predicted.SamplesPerSecond),
		Bottleneck: m.bottleneck(predicted)}
	if !a.Ordinary {
		p.Predicted.Bottleneck = m.planBottleneck(a, predicted)
	}
	return p, nil
}

// tidy rounds to a millionth, so that documents do not carry noise.
func tidy(v float64) float64 { return math.Round(v*1e6) / 1e6 }
