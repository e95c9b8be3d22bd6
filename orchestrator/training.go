package orchestrator

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/launch"
)

// train launches the workers and brings them back until the script has ended, or until
// nothing is gained by another attempt.
func (s *session) train(ctx context.Context) error {
	s.restarts.GlobalBatch = s.plan.GlobalBatch
	s.all = s.devices.Chosen
	s.tracker = newTracker(len(s.devices.Chosen))
	if err := s.restarts.write(s.run); err != nil {
		return err
	}
	for {
		err := s.trainOnce(ctx)
		var failed *ScriptError
		if err == nil {
			return s.lastSave()
		}
		if !errors.As(err, &failed) {
			return err
		}
		if err := s.afterFailure(ctx, failed.Failure); err != nil {
			return err
		}
	}
}

// trainOnce is one attempt.
func (s *session) trainOnce(ctx context.Context) error {
	if err := s.enter(Starting, "", nil); err != nil {
		return err
	}
	s.tracker.begin(len(s.devices.Chosen))
	s.resumedAt = 0
	a := s.newAttempt(launch.Train, "")
	a.screen = true
	a.deps.Stderr = s.screen
	a.deps.Stdout = s.screen.beside(s.deps.Stdout)
	a.hear = s.hearTraining
	a.saves = s.saves
	a.restart = s.restarts.Total
	if s.restarts.BestStep > 0 {
		a.args = append(a.args[:len(a.args):len(a.args)], s.spec.ResumeArgs...)
		a.mustResume = s.restarts.newest() != nil
	}
	kills := readOOMKills(os.DirFS("/"))
	end, err := a.do(ctx)
	if err != nil {
		return err
	}
	for _, p := range end.outcome.Left {
		s.screen.say("%s cannot be killed; leaving it. Its device may need a reset of the host", p)
	}
	if end.stopped != nil {
		return end.stopped
	}
	if end.outcome.Success() {
		return nil
	}
	f := a.failure(end)
	f.Cause = causeOf(f, evidence{oomKills: readOOMKills(os.DirFS("/")) - kills, lost: s.lostRanks(ctx, f)})
	return &ScriptError{f}
}

// lastSave makes a failed save at the end of the training what it is: lost work.
func (s *session) lastSave() error {
	if s.restarts.SaveFailed == "" {
		return nil
	}
	return &ScriptError{Failure{Rank: 0, Step: s.tracker.last(), Reason: reasonException, Cause: DiskFull, Exception: "OSError",
		Message: "the script has ended, and its last checkpoint could not be saved: " + s.restarts.SaveFailed,
		LogPath: s.run.LogPath(0), NotRestarted: "make room and start it again"}}
}

// statusInterval is how often status.json is renewed while steps come in.
const statusInterval = time.Second

// hearTraining keeps an event and shows what it means for the run.
func (s *session) hearTraining(e events.Event) {
	s.keep(e)
	switch e.Kind {
	case events.Malformed:
		s.screen.say("note: rank %d sent a line that is %s: %s", e.Rank, e.Message, e.Detail)
	case events.Resume:
		s.hearResume(e)
	case events.Checkpoint:
		s.hearCheckpoint(e)
	}
	step, whole := s.tracker.add(e)
	if !whole {
		return
	}
	if s.state == Starting {
		if err := s.enter(Training, "", nil); err != nil {
			s.deps.Logger.Error("enter state", "error", err)
		}
	}
	s.screen.progress(step)
	if s.deps.Now().Sub(s.written) >= statusInterval {
		if err := s.writeStatus(Status{State: s.state, Step: &step}); err != nil {
			s.deps.Logger.Error("write status", "error", err)
		}
	}
}
