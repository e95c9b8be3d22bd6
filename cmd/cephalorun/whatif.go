package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler/estimate"
	"github.com/cephalorun/cephalorun/solver"
)

// planFlags are the flags of plan alone.
type planFlags struct {
	compare bool
	without []int
	add     []string
}

func (f *planFlags) register(s *pflag.FlagSet) {
	s.BoolVar(&f.compare, "compare", false, "compare with what other strategies would reach")
	s.IntSliceVar(&f.without, "without", nil, "and say what the plan would be without this rank (may be repeated)")
	s.StringArrayVar(&f.add, "add", nil, "and say what it would be with one more of this GPU (may be repeated)")
}

// asked says that there is more to answer than the plan.
func (f planFlags) asked() bool { return f.compare || len(f.without)+len(f.add) > 0 }

// answer is what plan prints as JSON where more than the plan was asked for.
type answer struct {
	Plan       solver.Plan     `json:"plan"`
	Strategies []outcomeRecord `json:"strategies,omitempty"`
	WhatIf     *whatIf         `json:"what_if,omitempty"`
}

// whatIf is the plan for other devices.
type whatIf struct {
	Change           string   `json:"change"`
	IterationMs      float64  `json:"iteration_ms,omitempty"`
	SamplesPerSecond float64  `json:"samples_per_second,omitempty"`
	Fits             bool     `json:"fits"`
	Reason           string   `json:"reason,omitempty"`
	Notes            []string `json:"notes,omitempty"`
}

// answerAll answers what the flags ask of a problem, as text and as a record.
func (f planFlags) answerAll(planned orchestrator.Planned, problem solver.Problem) (answer, string, error) {
	out := answer{Plan: planned.Plan}
	var text strings.Builder
	if f.compare {
		list, err := solver.Compare(problem)
		if err != nil {
			return out, "", err
		}
		out.Strategies = outcomeRecords(list)
		text.WriteString("\n" + show.Strategies(list, 0))
	}
	if len(f.without)+len(f.add) > 0 {
		w, err := f.whatIf(planned, problem)
		if err != nil {
			return out, "", err
		}
		out.WhatIf = &w
		text.WriteString("\n" + w.text(planned.Plan.Predicted) + "\n")
	}
	return out, text.String(), nil
}

func (f planFlags) whatIf(planned orchestrator.Planned, problem solver.Problem) (whatIf, error) {
	w := whatIf{Change: f.change(problem)}
	if len(f.without) > 0 {
		var err error
		if problem, err = problem.Without(f.without...); err != nil {
			return w, fmt.Errorf("%w: --without: %w", orchestrator.ErrUsage, err)
		}
	}
	for _, name := range f.add {
		like, note, err := estimate.Like(planned.Profile, name)
		if err != nil {
			return w, fmt.Errorf("--add: %w", err)
		}
		if note != "" {
			w.Notes = append(w.Notes, note)
		}
		problem = problem.With(orchestrator.DeviceOf(like))
	}
	plan, err := solver.Solve(problem)
	var none *solver.InfeasibleError
	switch {
	case errors.As(err, &none):
		w.Reason = err.Error()
	case err != nil:
		return w, err
	default:
		w.Fits, w.IterationMs, w.SamplesPerSecond = true, plan.Predicted.IterationMs, plan.Predicted.SamplesPerSecond
	}
	return w, nil
}

// change names the devices that go and come.
func (f planFlags) change(p solver.Problem) string {
	var parts []string
	for _, rank := range f.without {
		name := ""
		if rank >= 0 && rank < len(p.Devices) {
			name = " (" + p.Devices[rank].Name + ")"
		}
		parts = append(parts, fmt.Sprintf("without rank %d%s", rank, name))
	}
	for _, name := range f.add {
		parts = append(parts, "with one more "+name)
	}
	return strings.Join(parts, ", ")
}

func (w whatIf) text(now solver.PlanPrediction) string {
	text := w.Change + ": " + w.Reason
	if w.Fits {
		text = fmt.Sprintf("%s: %s per step, %.4g samples/s (%+.1f %%)", w.Change, show.Ms(w.IterationMs), w.SamplesPerSecond,
			100*(w.SamplesPerSecond/now.SamplesPerSecond-1))
	}
	for _, note := range w.Notes {
		text += "\nnote: " + note
	}
	return text
}
