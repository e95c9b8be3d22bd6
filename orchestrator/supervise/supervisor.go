package supervise

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options is what a Supervisor needs.
type Options struct {
	// GuardPath and GuardArgs start this program again as a guard: it must then
	// call Guard and exit. GuardEnv is the guard's environment; the programs that
	// it runs get their own.
	GuardPath string
	GuardArgs []string
	GuardEnv  []string
	Logger    *slog.Logger
}

// Supervisor starts guarded trees and cleans up after guards that died. One
// process has at most one.
type Supervisor struct {
	// Configuration and dependencies, never modified.
	options Options

	// State, under mu.
	mu     sync.Mutex
	guards map[int]bool // pids of guards that have not been waited for
}

// New prepares a supervisor and makes this process a sub-reaper.
func New(options Options) (*Supervisor, error) {
	if err := becomeSubreaper(); err != nil {
		return nil, err
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Supervisor{options: options, guards: map[int]bool{}}, nil
}

// orphanSweepLimit bounds the sweep after a guard that was killed.
const orphanSweepLimit = 5 * time.Second

// sweepOrphans kills what a lost guard left: it fell to this process.
func (s *Supervisor) sweepOrphans() []Process {
	left, err := sweep(s.orphans, killAll, func(list []Process) {
		for _, p := range list {
			if p.Parent == os.Getpid() {
				collect(p.PID)
			}
		}
	}, orphanSweepLimit)
	if err != nil {
		s.options.Logger.Error("not all that a guard process left when it was killed could be ended", "error", err)
	}
	return left
}

// orphans lists what fell to this process. Everything below a guard lives in the
// guard's session or in a newer one, and no process can enter a session that
// exists: so a child in our own session is one that we started ourselves, and
// one in another session is an orphan unless it is a guard.
func (s *Supervisor) orphans() ([]Process, error) {
	all, err := snapshot()
	if err != nil {
		return nil, err
	}
	own, err := unix.Getsid(0)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Process
	for _, p := range all {
		if p.Parent == os.Getpid() && p.Session != own && !s.guards[p.PID] {
			found = append(found, p)
			found = append(found, descendants(all, p.PID)...)
		}
	}
	// A process that is the first of its container also inherits what others start
	// inside (a debugging shell, say). Only what carries our mark is ours then.
	if os.Getpid() == 1 {
		found = slices.DeleteFunc(found, func(p Process) bool { return !marked(p.PID) })
	}
	return found, nil
}

func (s *Supervisor) addGuard(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guards[pid] = true
}

func (s *Supervisor) dropGuard(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.guards, pid)
}
