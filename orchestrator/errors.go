package orchestrator

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// Classes of failure, one for each exit code. A solver.InfeasibleError and a
// rundir.ErrNotWritable are classes of their own.
var (
	// ErrUsage: a flag, an argument or a file that was given is wrong.
	ErrUsage = errors.New("bad usage")
	// ErrScript: the training script failed.
	ErrScript = errors.New("the training script failed")
	// ErrGaveUp: what failed could pass, but the restarts that were allowed are used up.
	ErrGaveUp = errors.New("gave up restarting")
	// ErrMachine: this machine cannot run it: no usable Python, PyTorch or device.
	ErrMachine = errors.New("this machine cannot run it")
)

// StoppedError is a run that a signal ended.
type StoppedError struct {
	Signal unix.Signal
	// Step is the last one that was finished, those before a resume counted; 0 without.
	Step int
	// Doing is what was being done, for a command that does not train.
	Doing string
}

// Error says which signal and how far the run was.
func (e *StoppedError) Error() string {
	text := "stopped by " + unix.SignalName(e.Signal)
	switch {
	case e.Doing != "":
		return text + " while " + e.Doing
	case e.Step > 0:
		return fmt.Sprintf("%s after step %d", text, e.Step)
	}
	return text + " before the first step"
}

// ScriptError is a training script that failed, with the first failure found.
type ScriptError struct{ Failure Failure }

// Error is the failure's headline.
func (e *ScriptError) Error() string { return e.Failure.Headline() }

// GaveUpError is a run that was brought back in vain.
type GaveUpError struct {
	Failure  Failure
	Restarts int // of the whole run
}

// Error is the last failure's headline.
func (e *GaveUpError) Error() string {
	return fmt.Sprintf("gave up after %s: %s", show.Count(e.Restarts, "restart"), e.Failure.Headline())
}

// Unwrap makes it an ErrGaveUp, and shows the failure as a script's is shown.
func (e *GaveUpError) Unwrap() []error { return []error{ErrGaveUp, &ScriptError{e.Failure}} }

// unsoundDevice is the exception of a worker whose device computes wrongly: no script
// can help that.
const unsoundDevice = "UnsoundDevice"

// Unwrap says whose fault it is: the script's, or the machine's.
func (e *ScriptError) Unwrap() error {
	if e.Failure.Exception == unsoundDevice {
		return ErrMachine
	}
	return ErrScript
}

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUsage, fmt.Errorf(format, args...))
}

func machine(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMachine, fmt.Errorf(format, args...))
}
