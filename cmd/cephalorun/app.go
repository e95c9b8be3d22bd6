package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/output"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/cpu"
)

// guardCommand starts this program as the guard of a process tree.
const guardCommand = "guard-process"

// app is what the commands need of their surroundings.
type app struct {
	stdout, stderr io.Writer
	// screens is the way to both for whatever must not wait for a reader.
	screens   *output.Patient
	environ   []string
	dir       string
	dirErr    error // why the working folder is not known
	now       func() time.Time
	gpus, cpu profiler.Provider
	// guard makes the supervisor of process trees, once it is needed.
	guard func(*slog.Logger) (*supervise.Supervisor, error)
	// signals starts to listen for signals: the first one ends the context, the
	// second closes the channel.
	signals func(context.Context) (ctx context.Context, force <-chan struct{}, release func())
	// pause waits before a restart; nil waits by the clock.
	pause func(context.Context, time.Duration)
	// lookEvery is how often lost devices are looked for; 0 is a sensible time.
	lookEvery time.Duration
	// readings reads GPUs while a run trains; nil where nothing can. readEvery is how often
	// the machine is looked at; 0 is a sensible time.
	readings    func() profiler.Reader
	readAllGPUs bool // also those that a run does not use
	readEvery   time.Duration
	// pressure is what the control group says of its memory; nil asks the kernel.
	pressure func() cpu.Pressure
	// width is the width of the terminal on stderr, 0 if there is none.
	width int
	// screen says that stdout is a terminal.
	screen bool
}

// newApp is the app of a process.
func newApp() (*app, func()) {
	surviveReaders()
	host, _ := os.Hostname() // for reading only
	dir, dirErr := os.Getwd()
	a := &app{
		stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), dir: dir, dirErr: dirErr, now: time.Now,
		gpus: gpuProvider(host, slog.New(slog.DiscardHandler)), cpu: cpu.Provider{Node: host},
		signals: listenForSignals, readings: gpuReadings, readAllGPUs: os.Getenv(readAllVariable) != "",
		guard: func(log *slog.Logger) (*supervise.Supervisor, error) {
			return supervise.New(supervise.Options{
				GuardPath: "/proc/self/exe", GuardArgs: []string{"cephalorun", guardCommand},
				GuardEnv: []string{}, Logger: log,
			})
		},
	}
	a.screen = term.IsTerminal(int(os.Stdout.Fd()))
	if term.IsTerminal(int(os.Stderr.Fd())) {
		a.width = 80
		if w, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && w > 0 {
			a.width = w
		}
	}
	return a, func() {}
}

// deps are the dependencies of a run.
func (a *app) deps(o *options, force <-chan struct{}) (orchestrator.Deps, error) {
	stdout, stderr := a.screens.Writer(a.stdout), a.screens.Writer(a.stderr)
	guard, err := a.guard(newNotes(stderr))
	if err != nil {
		return orchestrator.Deps{}, err
	}
	d := orchestrator.Deps{
		Supervisor: guard, GPUs: a.gpus, CPU: a.cpu, Environ: a.environ, Dir: a.dir, Now: a.now,
		Stdout: stdout, Stderr: stderr, Width: a.width, Force: force, Pause: a.pause, LookEvery: a.lookEvery,
		ReadEvery: a.readEvery, Pressure: a.pressure,
	}
	d.ReadAllGPUs = a.readAllGPUs
	if a.readings != nil {
		d.Readings = a.readings()
	}
	if o.json {
		// Standard output is for events then; what the script prints goes beside it.
		d.Events, d.Stdout, d.Width = stdout, stderr, 0
	}
	return d, nil
}
