package orchestrator

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Classes of failure, one for each exit code. A solver.InfeasibleError and a
// rundir.ErrNotWritable are classes of their own.
var (
	// ErrUsage: a flag, an argument or a file that was given is wrong.
	ErrUsage = errors.New("bad usage")
	// ErrScript: the training script failed.
	ErrScript = errors.New("the training script failed")
	// ErrMachine: this machine cannot run it: no usable Python, PyTorch or device.
	ErrMachine = errors.New("this machine cannot run it")
)

// StoppedError is a run that a signal ended.
type StoppedError struct {
	Signal unix.Signal
	Steps  int // finished until then
}

// Error says which signal and how far the run was.
func (e *StoppedError) Error() string {
	return fmt.Sprintf("stopped by %s after %d steps", unix.SignalName(e.Signal), e.Steps)
}

// ScriptError is a training script that failed, with the first failure found.
type ScriptError struct{ Failure Failure }

// Error is the failure's headline.
func (e *ScriptError) Error() string { return e.Failure.Headline() }

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
