package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/fleet"
)

// bench is one test's surroundings: a state folder, a fake Python, and devices.
type bench struct {
	t      testing.TB
	dir    string
	app    *app
	out    *buffer
	err    *buffer
	signal func(unix.Signal)
	pauses []time.Duration // before restarts, which the bench does not wait for
}

// buffer is a writer that a test can read and wait on.
type buffer struct {
	mu      sync.Mutex
	content bytes.Buffer
	when    string
	then    func()
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.content.Write(p)
	if b.then != nil && strings.Contains(b.content.String(), b.when) {
		go b.then()
		b.then = nil
	}
	return n, err
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.String()
}

// on calls then, once, as soon as text has been written.
func (b *buffer) on(text string, then func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.when, b.then = text, then
}

func processor() fleet.Fleet {
	return fleet.Fleet{List: []profiler.Device{{UUID: "CPU-here", Name: "cpu", Kind: profiler.KindCPU,
		MemoryBytes: 8 << 30, FreeMemoryBytes: 8 << 30, UsableMemoryBytes: 8 << 30, Threads: 2,
		DTypes: []profiler.DType{profiler.Float32}}}}
}

func card(uuid string, major int) profiler.Device {
	return profiler.Device{UUID: uuid, GPUUUID: uuid, Name: "card", Kind: profiler.KindCUDA, Capability: profiler.Capability{major, 0},
		MemoryBytes: 8 << 30, FreeMemoryBytes: 8 << 30, UsableMemoryBytes: 8 << 30}
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), out: &buffer{}, err: &buffer{}}
	force := make(chan struct{})
	var first, listening sync.Once
	var cancel context.CancelCauseFunc
	ready := make(chan struct{})
	b.signal = func(s unix.Signal) {
		<-ready
		once := false
		first.Do(func() { cancel(&orchestrator.StoppedError{Signal: s}); once = true })
		if !once {
			close(force)
		}
	}
	b.app = &app{
		stdout: b.out, stderr: b.err, dir: b.dir, now: time.Now,
		environ: []string{fakeRole + "=python", fakeTorch + "=2.15.0", "PATH=/nowhere", "CEPHALO_PYTHON=" + executable(t),
			"GORACE=atexit_sleep_ms=0"},
		gpus: fleet.Fleet{Fails: profiler.ErrNoDriver}, cpu: processor(),
		guard: func(log *slog.Logger) (*supervise.Supervisor, error) {
			return supervise.New(supervise.Options{GuardPath: "/proc/self/exe", GuardArgs: []string{"guard", guardCommand},
				GuardEnv: []string{"GORACE=atexit_sleep_ms=0"}, Logger: log})
		},
		signals: func(ctx context.Context) (context.Context, <-chan struct{}, func()) {
			ctx, cancel = context.WithCancelCause(ctx)
			listening.Do(func() { close(ready) })
			return ctx, force, func() {}
		},
	}
	b.app.lookEvery = 10 * time.Millisecond
	b.app.pause = func(_ context.Context, d time.Duration) { b.pauses = append(b.pauses, d) }
	return b
}

func executable(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// file writes a file of the bench and returns its path.
func (b *bench) file(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// devices is a devices file with two processors of unequal speed.
func (b *bench) devices() string {
	return b.file("devices.yaml", "devices:\n  - { name: fast, kind: cpu, threads: 1, memory: 1GiB }\n  - { name: slow, kind: cpu, threads: 1, memory: 1GiB, slowdown: 3 }\n")
}

// run runs a command line in the bench's state folder.
func (b *bench) run(args ...string) int {
	return run(append([]string{"--state-dir", filepath.Join(b.dir, "state")}, args...), b.app)
}

// mustRun fails the test unless the exit code is the one wanted, and every text is
// found in what was printed.
func (b *bench) mustRun(want int, texts []string, args ...string) {
	b.t.Helper()
	got := b.run(args...)
	all := b.out.String() + b.err.String()
	if got != want {
		b.t.Fatalf("exit code %d, want %d:\n%s", got, want, all)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			b.t.Errorf("%q is not in:\n%s", text, all)
		}
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func mustReadJSON(t testing.TB, path string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, path)), into); err != nil {
		t.Fatal(err)
	}
}
