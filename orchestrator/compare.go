package orchestrator

import (
	"context"
	"errors"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

// compare runs the script's first steps under the best even split, for the report to
// say what the plan gains. A split that does not fit, or fails, is part of the answer;
// only a stop ends the run.
func (s *session) compare(ctx context.Context) error {
	if s.spec.CompareEven == 0 {
		return nil
	}
	even, err := s.evenPlan()
	var infeasible *solver.InfeasibleError
	if errors.As(err, &infeasible) {
		s.even = &show.EvenSplit{Problem: "it does not fit: " + infeasible.Error()}
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.enter(Comparing, "", nil); err != nil {
		return err
	}
	s.screen.say("even split: %d steps, to compare with", s.spec.CompareEven)
	return s.runEven(ctx, even)
}

// evenPlan solves for the even split and writes it beside the plan.
func (s *session) evenPlan() (solver.Plan, error) {
	problem, err := ProblemOf(s.profile, s.plan.GlobalBatch)
	if err != nil {
		return solver.Plan{}, err
	}
	even, err := Solve(problem, Even)
	if err != nil {
		return solver.Plan{}, err
	}
	data, err := even.Marshal()
	if err != nil {
		return solver.Plan{}, err
	}
	return even, rundir.WriteFile(s.run.Path(rundir.EvenPlanFile), data)
}

// runEven follows the attempt until it has enough steps.
func (s *session) runEven(ctx context.Context, even solver.Plan) error {
	steps := newTracker(len(s.devices.Chosen))
	a := s.newAttempt(launch.Train, "even-")
	a.planPath = s.run.Path(rundir.EvenPlanFile)
	a.hear = func(e events.Event) {
		if step, whole := steps.add(e); whole {
			s.screen.progress(step)
		} else if e.Kind != events.Step { // steps in the journal are those of the training
			s.keep(e)
		}
	}
	a.enough = func() bool { return len(steps.done) >= s.spec.CompareEven }
	end, err := a.do(ctx)
	if err != nil {
		return err
	}
	if end.stopped != nil {
		return end.stopped
	}
	report := steps.report(even, s.names())
	s.even = &show.EvenSplit{
		PredictedStepMs: report.PredictedStepMs, MeasuredStepMs: report.MeasuredStepMs, Steps: report.Steps - report.SkippedSteps,
	}
	switch {
	case !end.outcome.Success():
		s.even.Problem = a.failure(end).Headline()
	case report.MeasuredStepMs == 0:
		s.even.Problem = "the script ended before it could be measured"
	}
	return nil
}
