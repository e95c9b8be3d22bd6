package solver

import "fmt"

// Explanation is what there is to say about a plan.
type Explanation struct {
	IterationMs      float64
	SamplesPerSecond float64
	// Bottleneck is one sentence.
	Bottleneck string
	// ExposedMs is what overlaps with nothing: first gather, last reduction,
	// optimizer step.
	ExposedMs float64
	Steps     []StepPrediction
	Ranks     []RankExplanation
	// Unused has a sentence for every kind of device that got no sample.
	Unused []string
	// NextBest is what the plan with the other shares costs.
	NextBest string
	// Help has the change that would shorten the iteration most, if memory or
	// the link limits a device.
	Help         string
	Alternatives []Alternative
}

// RankExplanation is what there is to say about one rank.
type RankExplanation struct {
	Rank   int
	Device string
	Limit  Limit
	// Why is the limit in words.
	Why string
	// IdleShare is the part of the iteration in which the rank computes nothing.
	IdleShare float64
	Load      RankLoad
}

// Explain says why a plan is as it is: what limits every device, what it
// waits, why a device is not used, what would help, and what the plan's
// alternatives cost.
func Explain(p Problem, plan Plan) (Explanation, error) {
	m, err := newModel(p)
	if err != nil {
		return Explanation{}, err
	}
	a := plan.Allocation()
	cost, err := m.evaluate(a)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain plan: %w", err)
	}
	out := Explanation{IterationMs: cost.IterationMs, SamplesPerSecond: cost.SamplesPerSecond,
		Bottleneck: m.planBottleneck(a, cost), ExposedMs: cost.ExposedMs, Steps: cost.Steps, Alternatives: plan.Alternatives}
	for i, load := range cost.Ranks {
		r := RankExplanation{Rank: i, Device: label(p.Devices[i]), Load: load}
		if cost.IterationMs > 0 {
			r.IdleShare = max(0, 1-(load.ForwardMs+load.BackwardMs)/cost.IterationMs)
		}
		l := m.limitOf(i, a, cost)
		r.Limit, r.Why = l.limit, m.why(l, cost, load)
		out.Ranks = append(out.Ranks, r)
	}
	ask := &whatIf{m: m, nowMs: cost.IterationMs, allBusy: !a.hasIdle()}
	if out.Unused, err = ask.unused(a, cost.Ranks); err != nil {
		return Explanation{}, err
	}
	if plan.Strategy != StrategyCephalo {
		return out, nil // a plan to compare with: what would improve ours is not asked
	}
	if out.NextBest, err = ask.nextBest(a.Shares); err != nil {
		return Explanation{}, err
	}
	out.Help, err = ask.help(a, out.Ranks)
	return out, err
}
