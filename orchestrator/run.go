package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/templates"
)

// Run trains a script from start to end. The context's end, with a *StoppedError as
// its cause, stops it gracefully. The report is there also when the run failed after
// its launch.
func Run(ctx context.Context, spec Spec, deps Deps) (show.Report, error) {
	s, err := open(ctx, spec, deps)
	if err != nil {
		return show.Report{}, err
	}
	defer s.close()
	return s.conclude(ctx, s.nothingLeft(s.plannedRun(ctx)))
}

// Plan finds the plan of a script, measuring it if need be, and does not train.
func Plan(ctx context.Context, spec Spec, deps Deps) (Planned, error) {
	s, err := open(ctx, spec, deps)
	if err != nil {
		return Planned{}, err
	}
	defer s.close()
	if err = s.obtainPlan(ctx); err != nil {
		_, err = s.conclude(ctx, err)
		return Planned{}, err
	}
	if err := s.enter(Done, "planned", nil); err != nil {
		return Planned{}, err
	}
	return Planned{Plan: s.plan, Profile: s.profile, ProfilePath: s.run.Path(rundir.ProfileFile), Names: s.names(), Curve: s.curve}, nil
}

// plannedRun is the way of a run that ends well.
func (s *session) plannedRun(ctx context.Context) error {
	for _, note := range s.devices.Notes {
		s.screen.say("note: %s", note)
	}
	for _, d := range s.devices.LeftOut {
		s.screen.say("note: %s is left out: it %s", d.Label(), d.Problem)
	}
	if check := checkSharedMemory(sharedMemory("/dev/shm"), len(s.devices.Chosen)); check.Level != show.OK {
		s.screen.say("note: %s", check.Text)
	}
	if err := s.obtainPlan(ctx); err != nil {
		return err
	}
	if err := s.compare(ctx); err != nil {
		return err
	}
	return s.train(ctx)
}

func (s *session) obtainPlan(ctx context.Context) error {
	if s.spec.PlanFile == "" {
		if err := s.obtainProfile(ctx); err != nil {
			return err
		}
		return s.makePlan()
	}
	// The profile also says how the script draws its data, which workers need.
	if err := s.obtainProfile(ctx); err != nil {
		return err
	}
	return s.writePlan()
}

// conclude says how the run ended and writes the report.
func (s *session) conclude(ctx context.Context, err error) (show.Report, error) {
	var script *ScriptError
	if err != nil && ctx.Err() != nil && !errors.As(err, &script) {
		err = context.Cause(ctx)
	}
	outcome, message := Done, ""
	var failure *Failure
	var stopped *StoppedError
	switch {
	case err == nil:
	case errors.As(err, &stopped):
		stopped.Step = s.lastDone()
		outcome, message = Stopped, err.Error()
	default:
		outcome, message = Failed, err.Error()
		if errors.As(err, &script) {
			failure = &script.Failure
		}
	}
	s.unkept.say(s.screen, s.enter(outcome, message, failure))
	if s.tracker == nil {
		return show.Report{}, err
	}
	report := s.tracker.report(s.plan, s.names())
	report.Run, report.Dir, report.Outcome = s.run.ID, s.run.Dir, string(outcome)
	report.LastStep = s.lastDone()
	report.NothingLeft = s.allDone
	if failure != nil {
		report.Unreported(failure.Step - report.LastStep)
	}
	report.Even = s.even
	if outcome != Failed {
		s.learn(report)
	}
	report.Seconds = s.deps.Now().Sub(s.began).Seconds()
	if writeErr := s.writeReport(report, message); writeErr != nil {
		s.screen.say("note: the report could not be written: %v", writeErr)
	}
	s.note(events.Event{Kind: events.Ended, Message: string(outcome)})
	s.screen.say("%s", report.Text())
	if outcome == Stopped && report.LastStep > 0 {
		s.screen.say("%s", s.whatIsSaved())
	}
	return report, err
}

// whatIsSaved says what a run that was stopped can go on from.
func (s *session) whatIsSaved() string {
	if c := s.restarts.newest(); c != nil {
		return fmt.Sprintf("the newest checkpoint is %s (step %d); cephalorun resume %s goes on from there", c.Path, c.Step, s.run.ID)
	}
	if len(s.spec.ResumeArgs) > 0 {
		return fmt.Sprintf("no distributed checkpoint of the script was seen; if it saves in another way, cephalorun resume %s goes on from what it saved", s.run.ID)
	}
	return "nothing of this is saved, and the script would begin again at step 1: one that saves with torch.distributed.checkpoint can go on where it was stopped"
}

// lastDone is the number of the last step that was done, those before a resume counted. Where the
// last attempt came to no step it is the furthest one of all.
func (s *session) lastDone() int {
	if s.tracker == nil {
		return s.restarts.BestStep
	}
	last := max(s.tracker.last(), s.resumedAt)
	if s.tracker.steps() == 0 || last == 0 {
		return max(last, s.restarts.BestStep)
	}
	return last
}

func (s *session) writeReport(report show.Report, failure string) error {
	if err := rundir.WriteJSON(s.run.Path(rundir.ReportJSON), report); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := templates.Page(&page, templates.Report{
		Title: "Run " + report.Run, Failure: failure, Losses: s.tracker.losses(),
		Summary: facts(report), Ranks: templates.Table{Columns: report.Columns(), Rows: report.Rows()},
	}); err != nil {
		return err
	}
	return rundir.WriteFile(s.run.Path(rundir.ReportHTML), page.Bytes())
}
