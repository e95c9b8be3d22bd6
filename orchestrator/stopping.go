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
	// stepBeforeTerm is how much of it is left for the end of a step when no checkpoint
	// came.
	stepBeforeTerm = 3 * time.Second
	// remindEvery is the pause between two words about a checkpoint that is waited for.
	remindEvery = 10 * time.Second
)

// stopping is the way down of an attempt: ask, SIGTERM, SIGKILL.
type stopping struct {
	a      *attempt
	ask    <-chan time.Time // not to wait for a checkpoint any longer
	term   <-chan time.Time
	kill   <-chan time.Time
	killed chan supervise.Outcome
	timers []*time.Timer
	began  bool
	// hurried says that nothing is left to wait for.
	hurried bool
	// failing says that the attempt cannot end well any more.
	failing bool
	// deadline is when the workers get SIGTERM while a checkpoint is waited for.
	deadline time.Time
	reminded time.Time
}

func newStopping(a *attempt) *stopping {
	return &stopping{a: a, killed: make(chan supervise.Outcome, 1)}
}

// begin asks the workers to stop at the end of their step, or, when a scheduler asked
// and the script saves checkpoints, after its next one. While some worker does not
// listen yet, there is nothing to finish and SIGTERM comes at once.
func (s *stopping) begin(cause error) {
	term, kill := s.limits(cause)
	command, ask := events.Stop(), time.Duration(-1)
	if polite(cause) && s.a.saves != nil && s.a.saves() && term > stepBeforeTerm {
		command, ask = events.SaveAndStop(), term-stepBeforeTerm
	}
	if s.a.server.Broadcast(command) < len(s.a.devices) {
		term, ask = 0, -1
	}
	if ask >= 0 {
		s.ask = s.after(ask)
		s.deadline = s.a.deps.Now().Add(ask)
		s.remind()
	}
	s.term, s.kill = s.after(term), s.after(kill)
}

// polite says that a scheduler, and not a person at a terminal, asked for the end.
func polite(cause error) bool {
	var stopped *StoppedError
	return errors.As(cause, &stopped) && stopped.Signal != unix.SIGINT && stopped.Signal != unix.SIGHUP
}

// remind says now and then what is waited for.
func (s *stopping) remind() {
	now := s.a.deps.Now()
	if s.deadline.IsZero() || s.began || now.Sub(s.reminded) < remindEvery || now.After(s.deadline) {
		return
	}
	s.reminded = now
	s.a.say("waiting for the script's next checkpoint, %.0f s left", s.deadline.Sub(now).Seconds())
}

// killAfter ends the tree, unless it ends by itself before that. The first call counts.
func (s *stopping) killAfter(d time.Duration) {
	s.failing = true
	if s.kill == nil {
		s.kill = s.after(d)
	}
}

// killSoon ends the tree after a limit that is shorter than the one that is set.
func (s *stopping) killSoon(d time.Duration) {
	if !s.hurried {
		s.hurried, s.kill = true, s.after(d)
	}
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
