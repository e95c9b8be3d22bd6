package solver

import (
	"fmt"
	"math"
)

// unused says for every kind of device that got no sample (eight of them at
// most) what one would cost.
func (w *whatIf) unused(a Allocation, loads []RankLoad) ([]string, error) {
	var sentences []string
	for _, k := range w.m.kinds {
		for _, rank := range k.ranks {
			if a.Ranks[rank].Batch > 0 {
				continue
			}
			sentence, err := w.sayUnused(rank, loads[rank])
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

func (w *whatIf) sayUnused(rank int, load RankLoad) (string, error) {
	who := w.m.device(rank) + idleWork(w.m.problem, load)
	if w.m.problem.FixedBatches != nil {
		return who + ": its batch is 0 by hand", nil
	}
	forced := w.m.problem
	forced.used = map[int]bool{rank: true}
	with, err := w.solve(forced, math.Inf(1))
	switch {
	case err != nil:
		return "", err
	case with == nil:
		return fmt.Sprintf("%s: with a sample on it nothing fits", who), nil
	}
	alone, err := w.leftOut(rank)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: with a sample for it %s, without %s%s", who, seconds(with.bestMs), seconds(w.nowMs), alone), nil
}

// idleWork is what a device without samples does.
func idleWork(p Problem, load RankLoad) string {
	ms := load.ForwardMs + load.BackwardMs
	switch {
	case p.ShownOne:
		return fmt.Sprintf(" has no samples of the step; its script is shown one that weighs nothing and takes %s", seconds(ms))
	case ms > 0:
		return fmt.Sprintf(" has no samples; it stores state and computes for %s", seconds(ms))
	}
	return " not used, it only stores state"
}

// leftOut says what the plan costs if the device does not even store state.
func (w *whatIf) leftOut(rank int) (string, error) {
	if len(w.m.kindOf) == 1 {
		return "", nil
	}
	p, err := w.m.problem.Without(rank)
	if err != nil {
		return "", err
	}
	without, err := w.solve(p, math.Inf(1))
	switch {
	case err != nil:
		return "", err
	case without == nil:
		return "; its memory is needed", nil
	}
	ms := without.bestMs
	if ms < w.nowMs*(1-noticeable) {
		return fmt.Sprintf("; left out altogether %s, so run without it (--devices)", seconds(ms)), nil
	}
	return fmt.Sprintf("; left out altogether %s", seconds(ms)), nil
}
