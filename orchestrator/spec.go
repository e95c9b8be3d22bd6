package orchestrator

import (
	"context"
	"io"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/supervise"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/cpu"
)

// Spec is what the user asks for.
type Spec struct {
	// Script is the user's script; empty only for the measurement of hardware.
	Script string
	Args   []string
	// GlobalBatch is 0 when the script decides.
	GlobalBatch int
	Python      string // --python
	StateDir    string
	Devices     string // --devices
	ProfileFile string // --profile: use this profile
	PlanFile    string // --plan: use this plan
	Strategy    Strategy
	Wishes      Wishes // what else a plan must keep to
	// CompareEven is how many steps to run under the even split first; 0 for none.
	CompareEven int
	Weighting   string // samples | tokens | mean
	// StopGrace is how long a run may take to stop by itself after SIGTERM.
	StopGrace time.Duration
	KeepSlurm bool
	// AllowEmulatedBF16 lets bfloat16 run where the hardware has none.
	AllowEmulatedBF16 bool
	// Remeasure ignores a cached profile.
	Remeasure bool
	// MaxRestarts is how often the training is brought back without progress.
	MaxRestarts int
	// ResumeArgs follow the script's own arguments when it is to go on from its newest
	// checkpoint.
	ResumeArgs []string
	// ReplanAfter is for how many steps a rank must be slower or faster than planned before
	// a better plan is looked for; 0: never.
	ReplanAfter int
	// KeepCheckpoints is how many of the script's checkpoints are kept; 0: all.
	KeepCheckpoints int
	// StuckAfter is how long ranks may wait for each other at the least; 0: for ever.
	StuckAfter time.Duration
}

// Deps is what a run needs of its surroundings.
type Deps struct {
	Supervisor *supervise.Supervisor
	GPUs, CPU  profiler.Provider
	Environ    []string
	// Dir is the working folder of the script.
	Dir string
	Now func() time.Time
	// Stdout gets what rank 0 prints there, Stderr the same and our own words.
	Stdout, Stderr io.Writer
	// Events gets every event as a JSON line; nil without --json.
	Events io.Writer
	// Width is the terminal's width in columns; 0 when Stderr is no terminal.
	Width int
	// Force is closed when the user does not want to wait any longer.
	Force <-chan struct{}
	// LookEvery is how often lost devices are looked for; 0 is a sensible time.
	LookEvery time.Duration
	// Readings reads GPUs while they train; nil reads none. ReadEvery is how often the
	// machine is looked at; 0 is a sensible time.
	Readings  profiler.Reader
	ReadEvery time.Duration
	// ReadAllGPUs reads also those that the run does not use.
	ReadAllGPUs bool
	// Pressure is what the control group says of its memory; nil asks the kernel.
	Pressure func() cpu.Pressure
	// Pause waits before a restart; nil waits by the clock.
	Pause func(ctx context.Context, d time.Duration)
}
