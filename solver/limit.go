package solver

import (
	"fmt"
	"math"
)

// Limit is what keeps a device, or the whole plan, from being faster.
type Limit string

// The limits.
const (
	LimitCompute Limit = "compute"       // the others wait for it
	LimitSamples Limit = "whole samples" // it waits, but one sample more would make the step longer
	LimitMemory  Limit = "memory"        // it has time for one sample more, but no memory
	LimitLink    Limit = "link"          // the collectives take longer than computing
	LimitNone    Limit = "none"          // it has time and memory for one sample more, but there is none
)

// worthNaming is the least part of the iteration that a step must take for a rank that
// binds it to be called its limit.
const worthNaming = 0.05

// limited is a limit with its figures.
type limited struct {
	limit  Limit
	step   StepPrediction // of LimitCompute and LimitLink: the step that binds
	lack   int64          // of LimitMemory: bytes
	moreMs float64        // of LimitSamples: the iteration with one sample more
}

// limitOf says what limits a rank.
func (m *model) limitOf(rank int, a Allocation, p Prediction) limited {
	r := a.Ranks[rank]
	k := m.kinds[m.kindOf[rank]]
	if step, ok := m.binds(k, r, a, p); ok {
		return limited{limit: LimitCompute, step: step}
	}
	if top := binding(p); top.Rank < 0 {
		return limited{limit: LimitLink, step: top}
	}
	room, ms := m.oneMore(rank, a, p)
	if ms > p.IterationMs*(1+1e-9) {
		return limited{limit: LimitSamples, moreMs: ms}
	}
	if lack := m.stateHeld(r) - room; lack > 0 {
		return limited{limit: LimitMemory, lack: lack}
	}
	return limited{limit: LimitNone}
}

// binds is the longest step in which no rank is slower than this one, if it is worth naming.
func (m *model) binds(k *kind, r RankAllocation, a Allocation, p Prediction) (StepPrediction, bool) {
	own := m.loadWith(k, r.Batch, cutsOf(r.MicroBatches), r.Activations, r.KeptUnits)
	ragged := m.raggedIn(a)
	beside := m.overlaps(ragged, m.every()&^ragged)
	longest, found := StepPrediction{TotalMs: worthNaming * p.IterationMs}, false
	for _, part := range p.parts {
		step := p.Steps[part.step]
		t := own.times[part.step]
		if r.KeptUnits[step.Class] >= part.kept {
			t = own.keeping[part.step]
		}
		if part.rank >= 0 && beside[part.step].with(t) >= part.unitMs*(1-1e-6) && step.TotalMs >= longest.TotalMs {
			longest, found = step, true
		}
	}
	return longest, found
}

// oneMore is what the iteration would take at least if the rank had one sample more and the
// others what they have, and the most that is left for state then.
func (m *model) oneMore(rank int, a Allocation, p Prediction) (room int64, ms float64) {
	r, k := a.Ranks[rank], m.kinds[m.kindOf[rank]]
	ragged := m.raggedIn(a)
	beside := m.overlaps(ragged, m.every()&^ragged)
	u := newMenu(m, k, m.overlaps(0, 0))
	u.grow(r.Batch + 1)
	times := make([]float64, len(p.Steps))
	ms = math.Inf(1)
	for _, policy := range m.policies {
		u.sizes(r.Batch+1, func(size int) {
			left := min(u.load(&option{batch: r.Batch + 1, micro: size, policy: policy, times: times})-m.transitOf(rank, r), k.mostState)
			longer := p.IterationMs
			for _, part := range p.parts {
				longer += part.units * max(0, beside[part.step].with(times[part.step])-part.unitMs)
			}
			if longer < ms*(1-1e-9) || longer <= ms*(1+1e-9) && left > room {
				room, ms = left, longer
			}
		})
	}
	return room, ms
}

func (m *model) why(l limited, now Prediction, load RankLoad) string {
	switch l.limit {
	case LimitCompute:
		return fmt.Sprintf("no device is slower in %s, which takes %s", passOf(l.step), secondsOf(l.step.TotalMs, now.IterationMs))
	case LimitSamples:
		return fmt.Sprintf("one sample more would make it the slowest, and the step %s in place of %s", seconds(l.moreMs), seconds(now.IterationMs))
	case LimitMemory:
		return fmt.Sprintf("one sample more would fit into the time and lacks %s of memory", amount(l.lack))
	case LimitLink:
		return fmt.Sprintf("in %s, which takes %s, the collectives take longer than any device computes", passOf(l.step), secondsOf(l.step.TotalMs, now.IterationMs))
	}
	if m.problem.FixedBatches != nil {
		return fmt.Sprintf("it has time and %s of memory to spare, but its batch is given", amount(load.HeadroomBytes()))
	}
	return fmt.Sprintf("it has time and %s of memory to spare, but no sample is left for it", amount(load.HeadroomBytes()))
}
