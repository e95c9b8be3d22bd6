package rpc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

// TestMain lets the test binary stand in for the plugin and for a host: under
// a link whose name is a mode it does what the mode says.
func TestMain(m *testing.M) {
	modes := map[string]func() int{
		"serve":     func() int { return Serve(fleet(nil, nil), os.Stderr) },
		"no-driver": func() int { return Serve(fleet(nil, fmt.Errorf("%w (no library)", profiler.ErrNoDriver)), os.Stderr) },
		"silent":    func() int { return Serve(fleet(nil, errors.New("driver went mad")), os.Stderr) },
		"hang":      func() int { return Serve(fleet(func() { select {} }, nil), os.Stderr) },
		"crash":     func() int { return Serve(fleet(func() { os.Exit(3) }, nil), os.Stderr) },
		"junk":      func() int { fmt.Println("Hello, I am a script"); return 0 },
		"nothing":   func() int { return 1 },
		"mute":      func() int { time.Sleep(time.Minute); return 1 },
		"host":      runHost,
		"read":      func() int { return serveReadings(0) },
		// the third reading hangs
		"read-twice": func() int { return serveReadings(2) },
	}
	if mode, ok := modes[filepath.Base(os.Args[0])]; ok {
		os.Exit(mode())
	}
	os.Exit(m.Run())
}

func fleet(before func(), err error) Source {
	keep := make(chan *os.File, 1) // an open file that nobody refers to is closed
	return func(r Request) profiler.Provider { return fake{r, before, err, keep} }
}

// fake holds a lock on a file beside the plugin while it lives, so that a test
// can wait for its end: the kernel drops the lock when the process is gone.
type fake struct {
	request Request
	before  func()
	err     error
	keep    chan *os.File
}

var _ profiler.Provider = fake{}

func (f fake) Devices(context.Context) ([]profiler.Device, error) {
	held, err := lock(os.Args[0]+".lock", syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil, err
	}
	f.keep <- held
	if err := os.WriteFile(os.Args[0]+".asked", nil, 0o600); err != nil {
		return nil, err
	}
	fmt.Println("a stray line on standard output")
	if f.before != nil {
		f.before()
	}
	return []profiler.Device{{
		UUID: "GPU-1", Kind: profiler.KindCUDA, Node: f.request.Node, MemoryBytes: 7, FreeMemoryBytes: profiler.Unknown, ReserveBytes: f.request.DisplayReserveBytes,
		Capability: profiler.Capability{8, 0}, DTypes: []profiler.DType{profiler.BFloat16}, Link: profiler.Link{Peers: []profiler.Peer{{UUID: "GPU-2", Path: "nvlink"}}},
	}}, f.err
}

func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// runHost is a host that asks a plugin that hangs, and is killed meanwhile.
func runHost() int {
	_, err := Client{Path: filepath.Join(filepath.Dir(os.Args[0]), "hang")}.Devices(context.Background())
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// as links the test binary under a mode's name into a folder of its own.
func as(t *testing.T, modes ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, mode := range modes {
		if err := os.Symlink(self, filepath.Join(dir, mode)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, modes[0])
}

// gone waits until the plugin at path has ended.
func gone(t *testing.T, path string) {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		f, err := lock(path+".lock", syscall.LOCK_EX)
		if err == nil {
			err = f.Close()
		}
		got <- err
	}()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the plugin is still there")
	}
}

func TestDevicesOverTheWire(t *testing.T) {
	path := as(t, "serve")
	var log bytes.Buffer
	got, err := Client{Path: path, Request: Request{Node: "n1", DisplayReserveBytes: 5}, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []profiler.Device{{
		UUID: "GPU-1", Kind: profiler.KindCUDA, Node: "n1", MemoryBytes: 7, FreeMemoryBytes: profiler.Unknown, ReserveBytes: 5,
		Capability: profiler.Capability{8, 0}, DTypes: []profiler.DType{profiler.BFloat16}, Link: profiler.Link{Peers: []profiler.Peer{{UUID: "GPU-2", Path: "nvlink"}}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	gone(t, path)
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("not a log line: %q", line)
		}
	}
	if !strings.Contains(log.String(), "plugin_level") {
		t.Errorf("nothing of the plugin was logged: %q", log.String())
	}
}

func TestFailuresKeepTheirClass(t *testing.T) {
	_, err := Client{Path: as(t, "no-driver")}.Devices(context.Background())
	if !errors.Is(err, profiler.ErrNoDriver) || errors.Is(err, profiler.ErrCannotAsk) || err.Error() != "no NVIDIA driver (no library)" {
		t.Errorf("got %v", err)
	}
	_, err = Client{Path: as(t, "silent")}.Devices(context.Background())
	if !errors.Is(err, profiler.ErrCannotAsk) || errors.Is(err, profiler.ErrNoDriver) || !strings.Contains(err.Error(), "driver went mad") {
		t.Errorf("got %v", err)
	}
	if _, err := (Reply{Failure: "odd"}).result(); !errors.Is(err, profiler.ErrCannotAsk) {
		t.Errorf("got %v", err)
	}
}

// User case 37: every way in which a plugin can misbehave has an end, and is said.
func TestUserCase37PluginsThatMisbehave(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("\x7fELF nonsense"), 0o700); err != nil {
		t.Fatal(err)
	}
	other := sha256.Sum256([]byte("other"))
	cases := map[string]struct {
		client Client
		want   string
	}{
		"missing":               {Client{Path: filepath.Join(t.TempDir(), "none")}, "was not found: check the path"},
		"missing beside us":     {Client{}, "cephalorun-nvml was not found: it is built by `make build` and belongs beside cephalorun"},
		"not executable":        {Client{Path: plain}, "is not an executable file"},
		"a folder":              {Client{Path: t.TempDir()}, "is not an executable file"},
		"cannot be run":         {Client{Path: broken}, "start the NVML plugin"},
		"prints something else": {Client{Path: as(t, "junk")}, `it printed before its handshake: "Hello, I am a script"`},
		"ends at once":          {Client{Path: as(t, "nothing")}, "it ended before its handshake"},
		"says nothing":          {Client{Path: as(t, "mute"), StartLimit: 300 * time.Millisecond}, "timeout"},
		"another file":          {Client{Path: as(t, "serve"), Checksum: other[:]}, "its file is not the one that was built"},
		"dies when asked":       {Client{Path: as(t, "crash")}, "the NVML plugin ended while it was asked"},
		"never answers":         {Client{Path: as(t, "hang"), CallLimit: 300 * time.Millisecond}, "does not answer within 300ms"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := c.client.Devices(context.Background())
			if !errors.Is(err, profiler.ErrCannotAsk) || errors.Is(err, profiler.ErrNoDriver) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if c.client.Path != "" && c.client.CallLimit > 0 {
				gone(t, c.client.Path)
			}
		})
	}
}

func TestContextEndsTheCall(t *testing.T) {
	for _, mode := range []string{"mute", "hang"} {
		path := as(t, mode)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		_, err := Client{Path: path}.Devices(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, profiler.ErrCannotAsk) {
			t.Errorf("%s: got %v", mode, err)
		}
		gone(t, path)
	}
}

func TestRightChecksum(t *testing.T) {
	path := as(t, "serve")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := (Client{Path: path, Checksum: hash.Sum(nil)}).Devices(context.Background()); err != nil {
		t.Error(err)
	}
}

// A host that is killed outright must not leave its plugin behind, least of
// all one that is stuck in the driver.
func TestPluginEndsWithAKilledHost(t *testing.T) {
	path := as(t, "host", "hang")
	hang := filepath.Join(filepath.Dir(path), "hang")
	host := exec.Command(path)
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, hang+".asked")
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait() // says "killed"
	gone(t, hang)
}

// waitFor polls for a file that another process makes.
func waitFor(t *testing.T, path string) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(10 * time.Second)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%s never appeared", path)
		}
	}
}

func TestStartedByHand(t *testing.T) {
	var said bytes.Buffer
	if code := Serve(fleet(nil, nil), &said); code != 2 || !strings.Contains(said.String(), "try: cephalorun devices") {
		t.Errorf("got %d, %q", code, said.String())
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"SECRET=1", "PATH=/bin", "LD_LIBRARY_PATH=/l", "TMPDIR=/t", "CUDA_VISIBLE_DEVICES=0"})
	if want := []string{"PATH=/bin", "LD_LIBRARY_PATH=/l", "TMPDIR=/t"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if got := environment([]string{"TMPDIR=/" + strings.Repeat("x", 100)}); len(got) != 0 {
		t.Errorf("a socket's name would not fit: %v", got)
	}
}

func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	w := slogWriter{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, line := range []string{`{"@message":"hi","@level":"error","pid":4}`, "no json"} {
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	for _, want := range []string{`level=DEBUG msg=hi plugin_level=error pid=4`, `msg=plugin line="no json"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
	if bridge(nil) == nil {
		t.Error("no logger must be a silent one")
	}
}
