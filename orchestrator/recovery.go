package orchestrator

import (
	"context"
	"fmt"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// afterFailure decides what follows from a failure, and prepares the next attempt. Its error
// is the end of the run.
func (s *session) afterFailure(ctx context.Context, f Failure) error {
	reached := max(s.tracker.last(), s.resumedAt, f.Step) // the last step of a rank that dies may not be reported
	past := s.past(f)
	for _, rank := range s.lost {
		past.UUIDs = append(past.UUIDs, s.devices.Chosen[rank].UUID)
		if f.Reason == reasonException && !f.ofPeers && rank == f.Rank {
			s.banned = append(s.banned, s.devices.Chosen[rank].UUID)
		}
	}
	if f.Cause == BadCheckpoint {
		if s.skipDamaged(&f, s.damaged); f.NotRestarted != "" {
			return &ScriptError{f}
		}
	}
	v := s.restarts.judge(s.policy(), past, s.resumedAt, reached)
	if err := s.restarts.write(s.run); err != nil {
		// Without its folder a run cannot go on; what ended it is still the failure.
		why := withoutFolder(err, s.restarts.newest())
		if !v.again {
			why = v.why + "; and " + why
		}
		v = verdict{gaveUp: v.gaveUp, why: why}
	}
	if !v.again {
		f.NotRestarted = v.why
		if v.gaveUp {
			return &GaveUpError{Failure: f, Restarts: s.restarts.Total}
		}
		return &ScriptError{f}
	}
	s.sayRestart(fmt.Sprintf("restart %d of %d", s.restarts.Spent, s.spec.MaxRestarts), f)
	if err := s.enter(Restarting, f.Headline(), &f); err != nil {
		return err
	}
	s.checkCheckpoints()
	s.sayIfAllIsDoneAgain()
	s.pause(ctx, v.pause)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.adapt(ctx, f)
}

// withoutFolder says why a run whose folder is gone ends, and what is left of it.
func withoutFolder(err error, newest *savedCheckpoint) string {
	why := fmt.Sprintf("the run's folder cannot be written: %v", err)
	if newest == nil {
		return why
	}
	if c, ok := checkpointAt(newest.Path); ok && c.Problem == "" {
		why += fmt.Sprintf("; start it anew to go on from %s, which is whole", newest.Path)
	}
	return why
}

func (s *session) policy() policy {
	return policy{max: s.spec.MaxRestarts, resumable: len(s.spec.ResumeArgs) > 0 || len(s.restarts.Checkpoints) > 0,
		nothingLeft: s.restarts.nothingLeft()}
}

// sayRestart is the one line about a restart, on the screen and as an event.
func (s *session) sayRestart(which string, f Failure) {
	s.screen.say("%s: %s: %s; log: %s", which, f.Cause, f.Headline(), f.LogPath)
	resume := 0
	if c := s.restarts.newest(); c != nil {
		resume = c.Step
	}
	s.note(events.Event{Kind: events.Restart, Cause: string(f.Cause), Message: f.Headline(), Step: resume, Path: f.LogPath, Device: f.Device})
}

func (s *session) pause(ctx context.Context, d time.Duration) {
	if s.deps.Pause != nil {
		s.deps.Pause(ctx, d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sayIfAllIsDoneAgain warns where the script has nothing to go on from.
func (s *session) sayIfAllIsDoneAgain() {
	if s.restarts.newest() == nil && s.restarts.BestStep > 0 {
		s.screen.say("no whole checkpoint is known: the script may begin again at step 1, and do %s again", show.Count(s.restarts.BestStep, "step"))
	}
}
