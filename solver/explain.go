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
	// Help has the change that would shorten the iteration most, if memory
	// limits a device.
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
	out.Help, err = m.help(out.Ranks, cost.IterationMs)
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

// unused says for every kind of device that got no sample what one would cost.
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
	return fmt.Sprintf("%s: with it %s, without it %s", who, seconds(ms), seconds(withoutMs)), nil
}

// help asks of every kind of device that memory limits what the plan would be
// if it had no limit, and names the best.
func (m *model) help(ranks []RankExplanation, nowMs float64) (string, error) {
	best, sentence := nowMs*(1-1e-3), ""
	for _, k := range m.kinds {
		if ranks[k.ranks[0]].Limit != LimitMemory {
			continue
		}
		p := m.problem
		p.Devices = append([]Device(nil), p.Devices...)
		for _, rank := range k.ranks {
			p.Devices[rank].UsableMemoryBytes = maxBytes
		}
		ms, err := solveMs(p)
		if err != nil {
			return "", err
		}
		if ms < best {
			best = ms
			sentence = fmt.Sprintf("without its memory limit device %d (%s) would make the iteration %.1f %% shorter",
				k.ranks[0], label(k.device), 100*(1-ms/nowMs))
		}
	}
	return sentence, nil
}

// solveMs is the least iteration time of a problem.
func solveMs(p Problem) (float64, error) {
	m, err := newModel(p)
	if err != nil {
		return 0, err
	}
	a, err := m.solve()
	if err != nil {
		return 0, err
	}
	cost, err := m.evaluate(a)
	return cost.IterationMs, err
}

// seconds is a time in words.
func seconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f s", ms/1000)
}
