package main

import (
	"errors"
	"fmt"
	"slices"
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
	without rankList
	explain bool
	add     []string
}

func (f *planFlags) register(s *pflag.FlagSet) {
	s.BoolVar(&f.compare, "compare", false, "compare with what other strategies would reach")
	s.Var(&f.without, "without", "and say what the plan would be without these ranks, such as 3,5")
	s.StringArrayVar(&f.add, "add", nil, "and say what it would be with one more of this GPU, such as L4 (may be repeated)")
	s.BoolVar(&f.explain, "explain", false, "with --json: also print why the plan is as it is, as the text does")
}

// asked says that there is more to answer than the plan.
func (f planFlags) asked() bool {
	return f.compare || f.explain || len(f.without)+len(f.add) > 0
}

// answer is what plan prints as JSON where more than the plan was asked for.
type answer struct {
	Plan        solver.Plan       `json:"plan"`
	Explanation explanationRecord `json:"explanation"`
	Strategies  []outcomeRecord   `json:"strategies,omitempty"`
	WhatIf      *whatIf           `json:"what_if,omitempty"`
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
func (f planFlags) answerAll(planned orchestrator.Planned, problem solver.Problem, screen bool) (answer, string, error) {
	why, err := solver.Explain(problem, planned.Plan)
	if err != nil {
		return answer{}, "", err
	}
	out := answer{Plan: planned.Plan, Explanation: explanationOf(why)}
	var text strings.Builder
	text.WriteString(show.Explanation(why))
	if f.compare {
		list, err := solver.Compare(problem)
		if err != nil {
			return out, "", err
		}
		out.Strategies = outcomeRecords(list)
		text.WriteString("\n" + show.Strategies(list, 0, screen))
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
		none.Rank = f.before(none.Rank)
		w.Reason = none.Error()
	case err != nil:
		return w, err
	default:
		w.Fits, w.IterationMs, w.SamplesPerSecond = true, plan.Predicted.IterationMs, plan.Predicted.SamplesPerSecond
	}
	return w, nil
}

// before is the rank that a device had before others were left out.
func (f planFlags) before(rank int) int {
	for _, gone := range slices.Sorted(slices.Values(f.without)) {
		if gone <= rank {
			rank++
		}
	}
	return rank
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
