package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// savedSpec is spec.json: what a run was asked for, so that it can be taken up again.
// Paths are absolute. It holds no environment.
type savedSpec struct {
	Spec
	Dir string // the working folder of the script
}

// saveSpec keeps what was asked for.
func (s *session) saveSpec() error {
	saved := savedSpec{Spec: s.spec, Dir: s.deps.Dir}
	saved.Python = s.python.Path
	saved.Remeasure = false
	paths := []*string{&saved.Script, &saved.ProfileFile, &saved.PlanFile, &saved.StateDir}
	if isFile(saved.Devices) {
		paths = append(paths, &saved.Devices)
	}
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(s.deps.Dir, *path)
		}
	}
	return rundir.WriteJSON(s.run.Path(rundir.SpecFile), saved)
}

// Resume takes up a run whose supervisor is gone, or that was stopped: in its own folder,
// with its global batch, its budget and its checkpoints.
func Resume(ctx context.Context, run *rundir.Run, stateDir string, deps Deps) (show.Report, error) {
	s, err := reopen(ctx, run, stateDir, deps)
	if err != nil {
		return show.Report{}, err
	}
	defer s.close()
	s.screen.say("run %s is taken up again (last step so far: %d); %d of %s without progress are used up",
		run.ID, s.restarts.BestStep, s.restarts.Spent, show.Count(s.spec.MaxRestarts, "restart"))
	s.checkCheckpoints()
	s.sayIfAllIsDoneAgain()
	s.restarts.Total++
	return s.conclude(ctx, s.nothingLeft(s.plannedRun(ctx)))
}

func reopen(ctx context.Context, run *rundir.Run, stateDir string, deps Deps) (*session, error) {
	var saved savedSpec
	err := run.ReadJSON(rundir.SpecFile, &saved)
	if errors.Is(err, fs.ErrNotExist) || err == nil && saved.Script == "" {
		return nil, usage("run %s did not get far enough to be taken up again, or its %s is damaged; start it anew", run.ID, run.Path(rundir.SpecFile))
	}
	if err != nil {
		return nil, usage("%w; what the run was asked for is lost with it: start it anew, with the arguments that make the script resume", err)
	}
	before := Summarise(run)
	if before.State == Done {
		return nil, usage("run %s is done", run.ID)
	}
	if err := run.Lock(); err != nil {
		return nil, err
	}
	s, err := prepare(ctx, saved.Spec, deps)
	var other otherSetup
	if errors.As(err, &other) { // resume has no flags: what was given for other devices has had its time
		given := saved.ProfileFile
		saved.ProfileFile = ""
		if s, err = prepare(ctx, saved.Spec, deps); err == nil {
			s.screen.say("note: the run was started with --profile %s, which is of another model or other devices than there are now; it goes on with a profile of its own", given)
		}
	}
	if err == nil {
		s.deps.Dir, s.run, s.spec.StateDir = saved.Dir, run, stateDir
		s.restarts, err = recall(run, s.remembered())
	}
	if err == nil {
		s.restarts.BestStep = max(s.restarts.BestStep, before.Steps)
		s.taken = true
		switch steps, allowed := s.restarts.BestStep, s.policy(); {
		case steps > 0 && !allowed.resumable:
			err = usage("%s done and no checkpoint of this run is known, so the script would begin again at step 1; start it anew, with --resume-args if it can resume", areDone(steps))
		case steps > 0 && allowed.nothingLeft != "":
			err = usage("%s", allowed.beginsAgain(steps))
		}
	}
	if err == nil {
		err = s.fillFolder()
	}
	if err != nil {
		run.Unlock()
		return nil, err
	}
	_ = os.Remove(run.Path(rundir.ReportJSON)) // it is of the earlier part
	return s, nil
}
