package orchestrator

import (
	"math"
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

func report(rank, step, samples int, loss, ms, compute float64) events.Event {
	return events.Event{Kind: events.Step, Rank: rank, Step: step, Samples: samples, Loss: &loss,
		StepMs: ms, ComputeMs: compute, WaitMs: ms - compute, PeakMemoryBytes: int64(rank+1) << 30}
}

func TestTheLossIsTheMeanOverSamples(t *testing.T) {
	tr := newTracker(3)
	idle := events.Event{Kind: events.Step, Rank: 2, Step: 1, StepMs: 100}
	if _, whole := tr.add(report(0, 1, 6, 2, 100, 90)); whole {
		t.Error("whole after one of three ranks")
	}
	tr.add(idle)
	s, whole := tr.add(report(1, 1, 2, 6, 110, 20))
	if !whole || s.Loss != 3 || s.Samples != 8 || s.Ms != 110 || math.Abs(s.SamplesPerSecond-8000.0/110) > 1e-9 {
		t.Errorf("got %+v", s)
	}
}

func TestARankWithoutSamplesMayReportNaN(t *testing.T) {
	tr := newTracker(1)
	s, _ := tr.add(events.Event{Kind: events.Step, Rank: 0, Step: 1, StepMs: 5})
	if s.HasLoss {
		t.Errorf("got %+v", s)
	}
}

func TestMediansLeaveTheFirstStepsOut(t *testing.T) {
	tr := newTracker(1)
	for i, ms := range []float64{9000, 5000, 100, 130, 110} {
		tr.add(report(0, i+1, 4, 5-float64(i), ms, ms-10))
	}
	plan := solver.Plan{Ranks: []solver.RankPlan{{Batch: 4, Predicted: solver.RankPrediction{ForwardMs: 30, BackwardMs: 60}}},
		Predicted: solver.PlanPrediction{IterationMs: 105}}
	r := tr.report(plan, []string{"big"})
	if r.MeasuredStepMs != 110 || r.Steps != 5 || r.SkippedSteps != 2 || r.FirstLoss != 5 || r.LastLoss != 1 {
		t.Errorf("got %+v", r)
	}
	k := r.Ranks[0]
	if k.Device != "big" || k.PredictedComputeMs != 90 || k.MeasuredComputeMs != 100 || k.PredictedWaitMs != 15 || k.MeasuredWaitMs != 10 || k.MeasuredMemoryBytes != 1<<30 {
		t.Errorf("got %+v", k)
	}
}

func TestMedianOf(t *testing.T) {
	value := func(s show.Step) float64 { return s.Ms }
	cases := map[string]struct {
		ms   []float64
		want float64
	}{"none": {nil, 0}, "odd": {[]float64{3, 1, 2}, 2}, "even": {[]float64{4, 1, 2, 3}, 2.5}}
	for name, c := range cases {
		var steps []show.Step
		for _, ms := range c.ms {
			steps = append(steps, show.Step{Ms: ms})
		}
		if got := medianOf(steps, value); got != c.want {
			t.Errorf("%s: %g", name, got)
		}
	}
}
