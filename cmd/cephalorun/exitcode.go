package main

import (
	"errors"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// The exit codes are a contract; each belongs to a class of errors.
const (
	exitDone    = 0
	exitScript  = 1
	exitUsage   = 2
	exitNoPlan  = 3
	exitMachine = 4
	exitGaveUp  = 5
	exitSignal  = 128 // and the number of the signal
)

// exitHelp is the part of every command's help on exit codes.
const exitHelp = `
Exit codes:
  0      done
  1      the training script failed
  2      bad usage or a bad input file
  3      no plan fits the devices
  4      the machine cannot run it (no usable Python, PyTorch or device)
  5      gave up restarting
  128+n  ended by signal n; 141 also when nobody reads any more what a command prints (| head)
`

// exitCode is the code of an error.
func exitCode(err error) int {
	var stopped *orchestrator.StoppedError
	var infeasible *solver.InfeasibleError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &stopped):
		return exitSignal + int(stopped.Signal)
	case errors.As(err, &infeasible):
		return exitNoPlan
	case errors.Is(err, orchestrator.ErrGaveUp):
		return exitGaveUp
	case errors.Is(err, orchestrator.ErrScript):
		return exitScript
	case errors.Is(err, orchestrator.ErrMachine):
		return exitMachine
	case errors.Is(err, orchestrator.ErrUsage), errors.Is(err, profiler.ErrInvalid),
		errors.Is(err, rundir.ErrNotWritable), errors.Is(err, rundir.ErrNoRun), errors.Is(err, rundir.ErrLocked):
		return exitUsage
	default:
		return exitMachine
	}
}
