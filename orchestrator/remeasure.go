package orchestrator

import (
	"context"
	"fmt"
)

// afterMeasuring decides what follows when the model could not be measured. What may pass is
// tried again, within the budget of restarts; the rest ends the run, which the error says.
func (s *session) afterMeasuring(ctx context.Context, f Failure, oomKills int64) error {
	lost := s.lostRanks(ctx, f)
	f.Cause = causeOf(f, evidence{oomKills: oomKills, lost: lost})
	switch f.Cause {
	case HostMemory:
		f.Message = hostMemoryMessage(s.pressure())
	case DeviceLost:
		if err := s.stillThere(ctx); err != nil {
			return err
		}
		return machine("%s; start it again to measure without this device; log: %s", f.Headline(), f.LogPath)
	case DeviceMemory:
		f.NotRestarted = "measuring would need as much memory again"
		return &ScriptError{f}
	case ScriptFault:
		if why := s.damage(ctx); why != "" {
			f = s.ofDamage(f, why)
			if s.skipDamaged(&f, why); f.NotRestarted != "" {
				return &ScriptError{f}
			}
			return nil // measured again without it
		}
	}
	v := s.restarts.judge(s.policy(), s.past(f), 0, 0)
	if err := s.restarts.write(s.run); err != nil {
		return err
	}
	if !v.again {
		f.NotRestarted = v.why
		if v.gaveUp {
			return &GaveUpError{Failure: f, Restarts: s.restarts.Spent}
		}
		return &ScriptError{f}
	}
	s.restarts.Total-- // scripts are told how often the training was brought back
	s.sayRestart(fmt.Sprintf("measuring again, restart %d of %d", s.restarts.Spent, s.spec.MaxRestarts), f)
	s.pause(ctx, v.pause)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.stillThere(ctx)
}

// past is a failure as it is kept.
func (s *session) past(f Failure) pastFailure {
	return pastFailure{Time: s.deps.Now(), Cause: f.Cause, Reason: f.Reason, Rank: f.Rank, Device: f.Device, Step: f.Step,
		Exception: f.Exception, Message: f.Message}
}
