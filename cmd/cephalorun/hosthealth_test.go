package main

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/cpu"
	"github.com/cephalorun/cephalorun/profiler/fleet"
)

// gauges are readings of GPUs as a test wants them.
type gauges func(context.Context) ([]profiler.Reading, error)

func (g gauges) Readings(ctx context.Context) ([]profiler.Reading, error) { return g(ctx) }
func (g gauges) Close()                                                   {}

// onGPUs gives the bench two GPUs with such readings.
func (b *bench) onGPUs(g gauges) {
	b.app.gpus = fleet.Fleet{List: []profiler.Device{card("GPU-a", 9), card("GPU-b", 9)}}
	b.app.readings = func() profiler.Reader { return g }
	b.app.readEvery = 5 * time.Millisecond
}

// User case 37: the plugin is killed or hangs; that is said, and the training goes on to
// its end. What it says later is in the run's folder.
func TestUserCase37APluginThatFailsStopsNoTraining(t *testing.T) {
	b := newBench(t)
	var calls atomic.Int32
	b.onGPUs(func(context.Context) ([]profiler.Reading, error) {
		if calls.Add(1) < 3 {
			return nil, profiler.ErrCannotAsk
		}
		r := profiler.UnknownReading(0)
		r.UUID, r.At, r.TemperatureC = "GPU-a", time.Now(), 61
		other := r
		other.UUID, other.TemperatureC = "GPU-of-others", 99
		return []profiler.Reading{r, other}, nil
	})
	script := b.file("train.py", "measure float32\nsteps 60\n")
	b.mustRun(exitDone, nil, "profile", script) // the clocks are looked at meanwhile
	calls.Store(0)
	b.mustRun(exitDone, []string{"note: the GPUs cannot be read, which is tried again; the training goes on", "done after 60 steps"}, script)
	said := readFile(t, filepath.Join(b.dir, "state", "runs", "latest", "machine.json"))
	if !strings.Contains(said, `"temperature_c": 61`) || strings.Contains(said, "GPU-of-others") || !strings.Contains(said, `"total_bytes"`) {
		t.Errorf("machine.json: %s", said)
	}
	if kept := b.journal("hardware", "message"); len(kept) == 0 || !strings.Contains(kept[0].(string), "cannot be read") {
		t.Errorf("in the journal: %v", kept)
	}
}

// A GPU that was hot while it was measured is named by the plan, and also by the next one, from the
// profile that is kept; one that only keeps to its power is not.
func TestAGPUThatWasHeldBackIsNamed(t *testing.T) {
	b := newBench(t)
	b.onGPUs(func(context.Context) ([]profiler.Reading, error) {
		hot := profiler.UnknownReading(0)
		hot.UUID, hot.At, hot.BusyPercent, hot.ClockMHz, hot.MaxClockMHz, hot.Throttled = "GPU-a", time.Now(), 99, 1005, 1980, []string{"power", "heat"}
		fine := hot
		fine.UUID, fine.Throttled = "GPU-b", []string{"power"}
		return []profiler.Reading{hot, fine}, nil
	})
	script := b.file("train.py", "print x\nsleep 100\nmeasure float32\nsteps 3\n")
	note := "was held back by heat while it was measured (1005 of 1980 MHz)"
	b.mustRun(exitDone, []string{note}, script)
	b.mustRun(exitDone, []string{"profile: measured before", note}, script)
	if n := strings.Count(b.err.String(), "was held back"); n != 2 {
		t.Errorf("%d notes in two runs", n)
	}
}

// User case 47: the driver never answers again; a signal still stops everything in time,
// and status says since when nothing is known.
func TestUserCase47ABlockedDriverHoldsNothingUp(t *testing.T) {
	b := newBench(t)
	blocked, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	b.onGPUs(func(ctx context.Context) ([]profiler.Reading, error) {
		close(blocked)
		<-never
		return nil, nil
	})
	go func() {
		<-blocked
		b.signal(unix.SIGTERM)
	}()
	began := time.Now()
	b.mustRun(exitSignal+int(unix.SIGTERM), []string{"stopped"}, "--stop-grace", "2s", b.file("train.py", "measure float32\nwait\n"))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}

// User case 32: the kernel ended a worker for want of memory, which is told apart from a
// plain kill by the counter of the control group.
func TestUserCase32AWorkerThatTheKernelEnded(t *testing.T) {
	b := newBench(t)
	var kills atomic.Int64
	b.app.pressure = func() cpu.Pressure {
		return cpu.Pressure{OOMKills: kills.Add(1), LimitBytes: 4 << 30, PeakBytes: 4<<30 - 1}
	}
	b.train(exitDone, "steps 3\nsave\nuntil 1 kill 1\nsteps 5\n", []string{
		"restart 1 of 3: host-memory: rank 1", "the kernel ended it for want of host memory (the control group's limit is 4.0 GiB, the most it used 4.0 GiB)", "done after 5 steps",
	}, resume)
}

func TestWhatTheMachineSaysIsInTheFolder(t *testing.T) {
	b := newBench(t)
	b.app.readEvery = 5 * time.Millisecond
	b.train(exitDone, "steps 20\n", nil)
	run := filepath.Join(b.dir, "state", "runs", "latest")
	said := readFile(t, filepath.Join(run, "machine.json"))
	for _, text := range []string{`"memory"`, `"disks"`, `"free_bytes"`} {
		if !strings.Contains(said, text) {
			t.Errorf("%s is not in %s", text, said)
		}
	}
}
