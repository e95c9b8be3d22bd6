package orchestrator

import (
	"cmp"
	"slices"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

// warmUp is how many first steps the medians leave out: they load and compile.
const warmUp = 2

// tracker puts the ranks' reports of one step together and keeps what the closing
// report needs.
type tracker struct {
	ranks   int
	pending map[int][]*events.Event // by step, by rank
	done    []show.Step
	first   int // where in done the newest attempt begins
	peaks   []int64
}

func newTracker(ranks int) *tracker {
	t := &tracker{}
	t.begin(ranks)
	return t
}

// begin starts to count another attempt, which may have other ranks.
func (t *tracker) begin(ranks int) {
	t.ranks, t.pending, t.peaks, t.first = ranks, map[int][]*events.Event{}, make([]int64, ranks), len(t.done)
}

// steps is how many steps are done: those that were done twice count once.
func (t *tracker) steps() int { return len(t.done) }

// last is the number of the last step of the newest attempt; 0 without one.
func (t *tracker) last() int {
	if len(t.done) == t.first {
		return 0
	}
	return t.done[len(t.done)-1].Number
}

// add notes a report. It returns the step when that was the last rank's.
func (t *tracker) add(e events.Event) (show.Step, bool) {
	if e.Kind != events.Step || e.Rank < 0 || e.Rank >= t.ranks {
		return show.Step{}, false
	}
	t.peaks[e.Rank] = max(t.peaks[e.Rank], e.PeakMemoryBytes)
	reports := t.pending[e.Step]
	if reports == nil {
		reports = make([]*events.Event, t.ranks)
		t.pending[e.Step] = reports
	}
	reports[e.Rank] = &e
	if slices.Contains(reports, nil) {
		return show.Step{}, false
	}
	delete(t.pending, e.Step)
	step := combine(reports)
	t.forget(step.Number)
	t.done = append(t.done, step)
	return step, true
}

// forget drops steps that are done again after a restart.
func (t *tracker) forget(from int) {
	for len(t.done) > 0 && t.done[len(t.done)-1].Number >= from {
		t.done = t.done[:len(t.done)-1]
	}
	t.first = min(t.first, len(t.done))
}

// combine is one step of the run. The loss is the mean over all samples: a rank
// without samples does not count. The step takes as long as its slowest rank.
func combine(reports []*events.Event) show.Step {
	step := show.Step{Number: reports[0].Step}
	weighted := 0.0
	counted := 0
	for _, e := range reports {
		step.Ms = max(step.Ms, e.StepMs)
		step.Samples += e.Samples
		if e.Loss != nil && e.Samples > 0 {
			weighted += *e.Loss * float64(e.Samples)
			counted += e.Samples
		}
		step.Ranks = append(step.Ranks, show.RankStep{ComputeMs: e.ComputeMs, WaitMs: e.WaitMs, PeakMemoryBytes: e.PeakMemoryBytes})
	}
	if counted > 0 {
		step.Loss, step.HasLoss = weighted/float64(counted), true
	}
	if step.Ms > 0 {
		step.SamplesPerSecond = float64(step.Samples) / step.Ms * 1000
	}
	return step
}

// steady are the steps that count for medians: those of the newest attempt, whose plan
// is reported.
func (t *tracker) steady() []show.Step {
	newest := t.done[t.first:]
	if len(newest) <= warmUp {
		return nil
	}
	return newest[warmUp:]
}

// report puts predicted beside measured.
func (t *tracker) report(plan solver.Plan, names []string) show.Report {
	r := show.Report{
		Strategy: plan.Strategy, GlobalBatch: plan.GlobalBatch, Steps: len(t.done),
		SkippedSteps: len(t.done) - len(t.steady()), PredictedStepMs: plan.Predicted.IterationMs,
	}
	for _, s := range t.done {
		if s.HasLoss && !r.HasLoss {
			r.FirstLoss, r.HasLoss = s.Loss, true
		}
		if s.HasLoss {
			r.LastLoss = s.Loss
		}
	}
	steady := t.steady()
	r.MeasuredStepMs = medianOf(steady, func(s show.Step) float64 { return s.Ms })
	r.SamplesPerSecond = medianOf(steady, func(s show.Step) float64 { return s.SamplesPerSecond })
	for i, k := range plan.Ranks {
		compute := k.Predicted.ForwardMs + k.Predicted.BackwardMs
		row := show.ReportRow{
			Rank: k.Rank, Device: k.Device, Batch: k.Batch,
			PredictedComputeMs: compute, PredictedWaitMs: max(0, plan.Predicted.IterationMs-compute),
			PredictedMemoryBytes: cmp.Or(k.Predicted.PeakMemoryBytes, k.Predicted.MemoryBytes), MeasuredMemoryBytes: t.peaks[i],
			MeasuredComputeMs: medianOf(steady, func(s show.Step) float64 { return s.Ranks[i].ComputeMs }),
			MeasuredWaitMs:    medianOf(steady, func(s show.Step) float64 { return s.Ranks[i].WaitMs }),
		}
		if i < len(names) {
			row.Device = names[i]
		}
		r.Ranks = append(r.Ranks, row)
	}
	return r
}

func (t *tracker) losses() []float64 {
	var all []float64
	for _, s := range t.done {
		if s.HasLoss {
			all = append(all, s.Loss)
		}
	}
	return all
}

// medianOf is the middle value; 0 without steps.
func medianOf(steps []show.Step, value func(show.Step) float64) float64 {
	if len(steps) == 0 {
		return 0
	}
	values := make([]float64, len(steps))
	for i, s := range steps {
		values[i] = value(s)
	}
	return middle(values)
}
