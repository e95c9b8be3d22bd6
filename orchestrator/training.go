package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

// train launches the workers and brings them back until the script has ended, or until
// nothing is gained by another attempt.
func (s *session) train(ctx context.Context) error {
	s.restarts.GlobalBatch = s.plan.GlobalBatch
	s.all, s.whole = s.devices.Chosen, s.profile
	s.tracker = newTracker(len(s.devices.Chosen))
	s.watchHost(ctx)
	defer s.host.Close()
	for {
		err := s.trainOnce(ctx)
		var failed *ScriptError
		if errors.Is(err, errReplan) {
			err = s.changePlan(ctx)
			if err == nil {
				continue
			}
		}
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
	s.stragglers = newStragglers(s.plan)
	s.drift, s.better, s.solving = newDrift(s.plan, s.spec.ReplanAfter), nil, nil
	s.resumedAt, s.notLoaded, s.damaged, s.loaded = 0, "", "", nil
	a := s.newAttempt(launch.Train, "")
	if err := s.restarts.write(s.run); err != nil {
		return err
	}
	a.screen = true
	a.deps.Stderr = s.screen
	a.deps.Stdout = s.screen.beside(s.deps.Stdout)
	a.hear = s.hearTraining
	a.saves = s.saves
	a.restart = s.restarts.Total
	if s.firstStep > 0 {
		a.firstStep = max(s.spec.StuckAfter, firstStepTimes*s.firstStep)
	}
	s.launched = s.deps.Now()
	if s.restarts.BestStep > 0 || s.taken {
		a.args = append(a.args[:len(a.args):len(a.args)], s.spec.ResumeArgs...)
		a.mustResume = s.restarts.newest() != nil || s.restarts.BestStep > 0 && len(s.restarts.Checkpoints) > 0
	}
	s.comeback = s.lookForDevices(ctx)
	defer s.comeback.end()
	a.enough = func() bool { return s.comeback.enough() || s.isBetter() }
	before := s.pressure()
	end, err := a.do(ctx)
	if err != nil {
		return err
	}
	held := s.sayLeft(end)
	if end.stopped != nil {
		s.showStopped(a, end)
		return end.stopped
	}
	if end.outcome.Success() {
		a.ranks.ShowHeld()
		if end.stories.stoppedByRequest() {
			return errReplan
		}
		return s.trainedNothing(a, end, false)
	}
	if end.stuck != nil {
		s.sayStacks()
	}
	f := a.failure(end)
	if f.Rank == 0 {
		a.ranks.ShowHeld() // of a victim only the log has it
	}
	s.lost = s.without(held, s.lostRanks(ctx, f))
	after := s.pressure()
	f.Cause = causeOf(f, evidence{oomKills: after.OOMKills - before.OOMKills, lost: s.lost})
	if f.Cause == HostMemory {
		f.Message = hostMemoryMessage(after)
	}
	if f.Cause == ScriptFault {
		if s.damaged = s.damage(ctx); s.damaged != "" {
			f = s.ofDamage(f, s.damaged)
		}
	}
	return &ScriptError{f}
}

// showStopped shows what is left to see of an attempt that a signal ended, and who failed on the
// way down.
func (s *session) showStopped(a *attempt, end ended) {
	if !end.failed {
		a.ranks.ShowHeld()
		return
	}
	f := a.failure(end)
	if f.Rank == 0 {
		a.ranks.ShowHeld() // of a victim only the log has it
	}
	s.screen.say("note: before the run had stopped, %s; log: %s", f.Headline(), f.LogPath)
}

// errReplan is an attempt that was stopped for a better plan.
var errReplan = errors.New("stopped for another plan")

// lastSave makes a failed save at the end of the training what it is: lost work.
func (s *session) lastSave() error {
	if s.restarts.SaveFailed == "" {
		return nil
	}
	cause, advice := saveAdvice(s.restarts.SaveCause)
	return &ScriptError{Failure{Rank: 0, Step: s.tracker.last(), Reason: reasonException, Cause: cause,
		Message: "the script has ended, and its last checkpoint could not be saved: " + s.restarts.SaveFailed,
		LogPath: s.run.LogPath(0), NotRestarted: advice}}
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
		if s.firstStep == 0 {
			s.firstStep = s.deps.Now().Sub(s.launched)
		}
		s.unkept.say(s.screen, s.enter(Training, "", nil))
	}
	s.screen.progress(step)
	s.nameStragglers(step)
	s.watchDrift(step)
	if s.deps.Now().Sub(s.written) >= statusInterval {
		s.unkept.say(s.screen, s.writeStatus(Status{State: s.state, Step: &step}))
	}
}

// sayStacks names where the stacks of ranks that were stuck are, and who could not write its
// own: one that does not run Python, or that was stopped.
func (s *session) sayStacks() {
	var silent []string
	for rank := range s.devices.Chosen {
		info, err := os.Stat(s.run.Path(rundir.LogsDir, fmt.Sprintf("stacks-rank-%d.txt", rank)))
		if err != nil || info.ModTime().Before(s.launched) {
			silent = append(silent, fmt.Sprint(rank))
		}
	}
	if len(silent) == len(s.devices.Chosen) {
		s.screen.say("no rank could write its stack")
		return
	}
	text := "the stacks of the ranks are in " + s.run.Path(rundir.LogsDir, "stacks-rank-*.txt")
	if len(silent) > 0 {
		text += "; not that of rank " + strings.Join(silent, ", ") + ", which did not answer"
	}
	s.screen.say("%s", text)
}
