package orchestrator

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

const sigterm = unix.SIGTERM

// Ctrl-C ends everything within 10 s: workers may finish their step, then get SIGTERM,
// then SIGKILL.
const (
	interruptTerm = 4 * time.Second
	interruptKill = 8 * time.Second
	// termBeforeKill is how much of a longer grace is left for SIGTERM.
	termBeforeKill = 5 * time.Second
)

// stopping is the way down of an attempt: ask, SIGTERM, SIGKILL.
type stopping struct {
	a      *attempt
	term   <-chan time.Time
	kill   <-chan time.Time
	killed chan supervise.Outcome
	timers []*time.Timer
	began  bool
}

func newStopping(a *attempt) *stopping {
	return &stopping{a: a, killed: make(chan supervise.Outcome, 1)}
}

// begin asks the workers to stop at the end of their step. While some worker does not
// listen yet, there is nothing to finish and SIGTERM comes at once.
func (s *stopping) begin(cause error) {
	term, kill := s.limits(cause)
	if s.a.server.Broadcast(events.Stop()) < len(s.a.devices) {
		term = 0
	}
	s.term, s.kill = s.after(term), s.after(kill)
}

// limits are when SIGTERM and SIGKILL follow.
func (s *stopping) limits(cause error) (term, kill time.Duration) {
	var stopped *StoppedError
	if errors.As(cause, &stopped) && stopped.Signal != unix.SIGINT && s.a.grace > 0 {
		return max(s.a.grace/2, s.a.grace-termBeforeKill), s.a.grace
	}
	return interruptTerm, interruptKill
}

func (s *stopping) after(d time.Duration) <-chan time.Time {
	t := time.NewTimer(d)
	s.timers = append(s.timers, t)
	return t.C
}

// killNow ends the tree without further ado; its outcome comes on killed.
func (s *stopping) killNow() {
	if s.began {
		return
	}
	s.began = true
	go func() { s.killed <- s.a.tree.Kill() }()
}

func (s *stopping) release() {
	for _, t := range s.timers {
		t.Stop()
	}
}
