package orchestrator

import (
	"fmt"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
	"github.com/cephalorun/cephalorun/templates"
)

// Planned is a plan with what it was made from.
type Planned struct {
	Plan        solver.Plan
	Profile     profiler.Profile
	ProfilePath string
	Names       []string
	// Curve is what the global batch was chosen from; nil if it was not.
	Curve []solver.BatchPoint
}

// facts is the summary of the report's page.
func facts(r show.Report) []templates.Fact {
	all := []templates.Fact{
		{Name: "outcome", Value: r.Outcome},
		{Name: "plan", Value: fmt.Sprintf("%s, global batch %d", r.Strategy, r.GlobalBatch)},
		{Name: "steps", Value: fmt.Sprintf("%d in %.1f s", r.Steps, r.Seconds)},
	}
	if r.HasLoss {
		all = append(all, templates.Fact{Name: "loss", Value: fmt.Sprintf("%.4f to %.4f", r.FirstLoss, r.LastLoss)})
	}
	if r.MeasuredStepMs > 0 {
		all = append(all,
			templates.Fact{Name: "step", Value: fmt.Sprintf("predicted %s, measured %s (%+.0f %%)", show.Ms(r.PredictedStepMs), show.Ms(r.MeasuredStepMs), r.Off())},
			templates.Fact{Name: "samples per second", Value: fmt.Sprintf("%.1f", r.SamplesPerSecond)})
	}
	if r.Even != nil {
		_, text, _ := strings.Cut(r.Comparison(), ": ")
		all = append(all, templates.Fact{Name: "even split", Value: text})
	}
	return all
}
