package supervise

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startAgent runs a stand-in launcher and waits until all of its processes run:
// itself, its workers and one helper of each.
func startAgent(t *testing.T, workers string, n int, args ...string) (*Tree, []seen) {
	t.Helper()
	return startAgentOf(t, newSupervisor(t), workers, n, args...)
}

func newSupervisor(t *testing.T) *Supervisor {
	t.Helper()
	s, err := New(guardOptions())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func startAgentOf(t *testing.T, s *Supervisor, workers string, n int, args ...string) (*Tree, []seen) {
	t.Helper()
	r, w := io.Pipe()
	lines := make(chan []byte, 1000)
	go func() {
		for l := range lines {
			_, _ = w.Write(l)
		}
	}()
	tree, err := s.Start(context.Background(), agentCommand(func(l []byte) { lines <- append([]byte(nil), l...) },
		append([]string{"-workers", workers}, args...)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Kill() })
	return tree, collectSeen(t, r, n)
}

// mustBeGone fails unless each process has ended within the limit.
func mustBeGone(t *testing.T, all []seen, limit time.Duration) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for _, s := range all {
		fd, err := unix.PidfdOpen(s.Process.PID, 0)
		for err == nil && Alive(s.Process.PID, s.Process.StartTicks) && time.Now().Before(deadline) {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit.Milliseconds()))
		}
		if err == nil {
			_ = unix.Close(fd)
		}
		if Alive(s.Process.PID, s.Process.StartTicks) {
			t.Errorf("%s %s still runs after %s", s.Role, s.Process, limit)
		}
	}
}

func TestStop(t *testing.T) {
	cases := map[string]struct {
		args  []string
		grace time.Duration
		want  unix.Signal
	}{
		"a launcher that obeys SIGTERM leaves no worker or helper":    {nil, 20 * time.Second, unix.SIGTERM},
		"a launcher and workers that ignore SIGTERM are killed":       {[]string{"-ignore-term"}, 50 * time.Millisecond, unix.SIGKILL},
		"a launcher that floods its output is stopped all the same":   {[]string{"-lines", "20000"}, 20 * time.Second, unix.SIGTERM},
		"a launcher with an unfinished line is stopped all the same ": {[]string{"-partial", "\n"}, 20 * time.Second, unix.SIGTERM},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tree, all := startAgent(t, "2", 5, c.args...)
			got := tree.Stop(context.Background(), c.grace)
			if got.Signal != int(c.want) || got.GuardLost || len(got.Left) != 0 {
				t.Errorf("outcome %+v, want signal %d and nothing left", got, c.want)
			}
			mustBeGone(t, all, 0)
		})
	}
}

func TestKillEndsEverythingAtOnce(t *testing.T) {
	tree, all := startAgent(t, "3", 7, "-ignore-term")
	if got := tree.Kill(); got.Signal != int(unix.SIGKILL) || len(got.Left) != 0 {
		t.Errorf("outcome %+v", got)
	}
	mustBeGone(t, all, 0)
}

func TestSecondSignalCutsTheGraceShort(t *testing.T) {
	tree, all := startAgent(t, "1", 3, "-ignore-term")
	ctx, force := context.WithCancel(context.Background())
	force()
	tree.Stop(ctx, time.Hour)
	mustBeGone(t, all, 0)
}

// User case 26: the launcher dies by SIGKILL, which leaves its workers and their
// helpers behind when nobody looks after them.
func TestUserCase26KilledLauncher(t *testing.T) {
	tree, all := startAgent(t, "2", 5)
	if err := tree.First().Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := tree.Outcome(); got.Signal != int(unix.SIGKILL) || got.GuardLost {
		t.Errorf("outcome %+v", got)
	}
	mustBeGone(t, all, 0)
}

func TestUserCase26KilledGuard(t *testing.T) {
	tree, all := startAgent(t, "2", 5)
	if err := unix.Kill(tree.Guard(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := tree.Outcome(); !got.GuardLost || len(got.Left) != 0 {
		t.Errorf("outcome %+v, want a lost guard and nothing left", got)
	}
	mustBeGone(t, all, 0)
}

func TestUserCase26KilledSupervisor(t *testing.T) {
	for name, signal := range map[string]unix.Signal{
		"SIGKILL": unix.SIGKILL, "a crash": unix.SIGABRT,
	} {
		t.Run(name, func(t *testing.T) {
			c := exec.Command("/proc/self/exe", "-workers", "2", "-ignore-term")
			c.Env = standInEnv("supervisor")
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			all := collectSeen(t, out, 6) // guard, agent, 2 workers, 2 helpers
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			mustBeGone(t, all, 5*time.Second)
			_ = c.Process.Kill()
			_ = c.Wait()
		})
	}
}

func TestExitStatusIsCarriedBack(t *testing.T) {
	cases := map[string]struct {
		args []string
		want Status
	}{
		"success":                       {[]string{"-exit", "0"}, Status{}},
		"its own code":                  {[]string{"-exit", "7"}, Status{Code: 7}},
		"death before the first line":   {[]string{"-exit", "3", "-workers", "1"}, Status{Code: 3}},
		"a last line without a newline": {[]string{"-exit", "1", "-partial", "bye"}, Status{Code: 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tree, err := newSupervisor(t).Start(context.Background(), agentCommand(nil, c.args...))
			if err != nil {
				t.Fatal(err)
			}
			if got := tree.Outcome(); got.Status != c.want || len(got.Left) != 0 || got.GuardLost {
				t.Errorf("outcome %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestNoLineIsLostOrCut(t *testing.T) {
	const lines, long = 50_000, 10 << 20
	s := newSupervisor(t)
	var ends, longest int
	var line []byte // where reading 10 MB takes long, it comes in pieces
	c := agentCommand(func(l []byte) {
		line = append(line, l...)
		if !bytes.HasSuffix(l, []byte("\n")) {
			return
		}
		if want := fmt.Sprintf("line %d\n", ends); ends < lines && string(line) != want {
			t.Errorf("got %q, want %q", line, want)
		}
		ends++
		longest = max(longest, len(line))
		line = line[:0]
	}, "-lines", "50000", "-long", "10485760", "-partial", "the end", "-exit", "0")
	tree, err := s.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	tree.Outcome()
	if ends != lines+1 || longest != long+1 || string(line) != "the end" {
		t.Errorf("%d lines, longest %d bytes, then %q", ends, longest, line)
	}
}

func TestStartSaysWhatFailed(t *testing.T) {
	s := newSupervisor(t)
	missing := filepath.Join(t.TempDir(), "no such program")
	_, err := s.Start(context.Background(), Command{Path: missing, Args: []string{"x"}, Dir: "/"})
	if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
	s.options.GuardPath = "/bin/false"
	if _, err = s.Start(context.Background(), Command{Path: "/bin/true", Dir: "/"}); err == nil {
		t.Error("a guard that ends at once is no error")
	}
}

func TestStrangersAreLeftAlone(t *testing.T) {
	// A child of ours in our own session is not part of any tree.
	own := exec.Command("/proc/self/exe")
	own.Env = standInEnv("helper")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Process.Kill(); _ = own.Wait() })
	s := newSupervisor(t)
	tree, _ := startAgentOf(t, s, "1", 3)
	second, _ := startAgentOf(t, s, "1", 3)
	_ = unix.Kill(tree.Guard(), unix.SIGKILL)
	tree.Outcome()
	if p, err := ReadProcess(own.Process.Pid); err != nil || p.dead() {
		t.Errorf("a process that is not of the tree was killed: %v %v", p, err)
	}
	if left, _ := second.Processes(); len(left) != 3 {
		t.Errorf("the other tree has %d processes, want 3", len(left))
	}
}
