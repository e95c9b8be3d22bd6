package orchestrator

import (
	"errors"
	"fmt"
)

// Phases of the exit of a script that ended with 0 and without a training step.
const (
	exitUntrained   = "untrained"
	exitNothingLeft = "nothing-left" // it has loaded what an earlier run saved
)

// UntrainedError is a script that ended well and trained nothing, on every rank: none of them
// is to blame. It is no error where NothingLeft says that all steps were done before.
type UntrainedError struct {
	Script      string
	How         string // how it ended; empty where all is said by that no step was made
	LogPath     string
	Measuring   bool
	NothingLeft bool
}

// Error says what the script did, and what it was to do.
func (e *UntrainedError) Error() string {
	how, so := e.How, "nothing was trained"
	if how == "" {
		how = "without a training step"
	}
	if e.NothingLeft {
		how = "and found nothing left to train"
	}
	if e.Measuring {
		so = "there was nothing to measure"
	}
	return fmt.Sprintf("%s ended %s, so %s; what it printed: %s", e.Script, how, so, e.LogPath)
}

// Unwrap makes it an error of the script's.
func (e *UntrainedError) Unwrap() error { return ErrScript }

// untrained says that every rank ended with 0 and without a training step, and how.
func (s *stories) untrained() (UntrainedError, bool) {
	found := UntrainedError{}
	for _, r := range s.ranks {
		if r.exit == nil || r.exit.Phase != exitUntrained && r.exit.Phase != exitNothingLeft {
			return UntrainedError{}, false
		}
		found.NothingLeft = found.NothingLeft || r.exit.Phase == exitNothingLeft
		found.How = r.exit.Message
	}
	return found, true
}

// trainedNothing is the end of an attempt whose script trained nothing; nil if it did, or if it had
// nothing left to train after an earlier run. One that has done steps before has nothing left,
// however its script knows.
func (s *session) trainedNothing(a *attempt, end ended, measuring bool) error {
	found, is := end.stories.untrained()
	if !is {
		return nil
	}
	found.Script, found.LogPath, found.Measuring = s.spec.Script, a.logPath(0), measuring
	found.NothingLeft = found.NothingLeft || s.restarts.BestStep > 0
	s.allDone = found.NothingLeft
	if s.allDone && !measuring {
		s.sayLoaded()
		return nil
	}
	return &found
}

// nothingLeft ends a run whose script has nothing left to train, as was found out while the model
// was measured, like any other that is done.
func (s *session) nothingLeft(err error) error {
	var found *UntrainedError
	if !errors.As(err, &found) || !found.NothingLeft {
		return err
	}
	s.tracker = newTracker(len(s.devices.Chosen))
	return nil
}
