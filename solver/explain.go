package solver

import (
	"errors"
	"fmt"
)

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
		limit, lack := m.limitOf(i, a, cost)
		r.Limit, r.Why = limit, m.why(limit, lack, load)
		out.Ranks = append(out.Ranks, r)
	}
	if out.Unused, err = m.unused(a, cost.IterationMs); err != nil {
		return Explanation{}, err
	}
	if plan.Strategy != StrategyCephalo {
		return out, nil // a plan to compare with: what would improve ours is not asked
	}
	if out.NextBest, err = m.nextBest(a.Shares, cost.IterationMs); err != nil {
		return Explanation{}, err
	}
	out.Help, err = m.help(a, out.Ranks, cost.IterationMs)
	return out, err
}

func (m *model) why(limit Limit, lack int64, load RankLoad) string {
	switch limit {
	case LimitCompute:
		return "it computes as long as the others wait; one sample more would take longer"
	case LimitMemory:
		return fmt.Sprintf("one sample more would fit into the time and lacks %s of memory", amount(lack))
	case LimitLink:
		return "the collectives take longer than any device computes"
	}
	return fmt.Sprintf("it has time and %s of memory to spare, but no sample is left for it", amount(load.HeadroomBytes()))
}

// unused says for every kind of device that got no sample (eight of them at
// most) what one would cost.
func (m *model) unused(a Allocation, withoutMs float64) ([]string, error) {
	var sentences []string
	for _, k := range m.kinds {
		for _, rank := range k.ranks {
			if a.Ranks[rank].Batch > 0 {
				continue
			}
			sentence, err := m.sayUnused(rank, withoutMs)
			if err != nil {
				return nil, err
			}
			sentences = append(sentences, sentence)
			break
		}
		if len(sentences) == whatIfKinds {
			break
		}
	}
	return sentences, nil
}

func (m *model) sayUnused(rank int, withoutMs float64) (string, error) {
	who := fmt.Sprintf("device %d (%s) not used, it only stores state", rank, label(m.problem.Devices[rank]))
	if m.problem.FixedBatches != nil {
		return who + ": its batch is 0 by hand", nil
	}
	forced := m.problem
	forced.used = map[int]bool{rank: true}
	ms, err := solveMs(forced)
	var none *InfeasibleError
	switch {
	case errors.As(err, &none):
		return fmt.Sprintf("%s: with a sample on it nothing fits", who), nil
	case err != nil:
		return "", err
	}
	alone, err := m.leftOut(rank, withoutMs)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: with it %s, without it %s%s", who, seconds(ms), seconds(withoutMs), alone), nil
}

// leftOut says what the plan costs if the device does not even store state.
func (m *model) leftOut(rank int, nowMs float64) (string, error) {
	if len(m.kindOf) == 1 {
		return "", nil
	}
	p, err := m.problem.Without(rank)
	if err != nil {
		return "", err
	}
	ms, err := solveMs(p)
	var none *InfeasibleError
	switch {
	case errors.As(err, &none):
		return "; its memory is needed", nil
	case err != nil:
		return "", err
	}
	if ms < nowMs*(1-noticeable) {
		return fmt.Sprintf("; left out altogether %s, so run without it (--devices)", seconds(ms)), nil
	}
	return fmt.Sprintf("; left out altogether %s", seconds(ms)), nil
}

// seconds is a time in words.
func seconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f s", ms/1000)
}
