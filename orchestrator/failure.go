package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

// Failure is the first real failure of an attempt.
type Failure struct {
	// Rank is events.NoRank when no rank can be named: the launcher itself failed.
	Rank   int    `json:"rank"`
	Device string `json:"device,omitempty"`
	Host   string `json:"host,omitempty"`
	// Step is the last step that the rank finished.
	Step int `json:"step"`
	// Reason is what happened: "exception", "killed", "early-exit", "stuck", "launcher",
	// "launcher-killed".
	Reason string `json:"reason"`
	// Cause is the class that the reason and all else that was seen amount to.
	Cause     Cause  `json:"cause,omitempty"`
	Exception string `json:"exception,omitempty"`
	Message   string `json:"message,omitempty"`
	UserFrame string `json:"user_frame,omitempty"`
	LogPath   string `json:"log_path,omitempty"`
	// Lines are the last lines that the rank, or the launcher, printed.
	Lines []string `json:"lines,omitempty"`
	// Victims are the ranks that were stopped because of it.
	Victims []int `json:"victims,omitempty"`
	// NeedsMemory says that the device had no memory left, and NeededBytes how much the
	// rank would have held; 0 when that is not known.
	NeedsMemory bool  `json:"needs_memory,omitempty"`
	NeededBytes int64 `json:"needed_bytes,omitempty"`
	// NotRestarted says why there was no other attempt.
	NotRestarted string `json:"not_restarted,omitempty"`

	ofPeers bool // it only speaks of the death of other ranks
}

// Reasons of a failure.
const (
	reasonException = "exception"
	reasonKilled    = "killed"
	reasonEarlyExit = "early-exit"
	reasonStuck     = "stuck"
	reasonLauncher  = "launcher"
	// reasonLauncherKilled is a launcher that somebody else ended.
	reasonLauncherKilled = "launcher-killed"
)

// interrupted is what Python raises at a SIGINT.
const interrupted = "KeyboardInterrupt"

const interruptedMessage = "somebody sent the worker a SIGINT (KeyboardInterrupt), unless the script raises that by itself"

const diedSilently = "the process was killed or crashed without a word"

// Headline is the failure in one line.
func (f Failure) Headline() string {
	after := "before its first step"
	if f.Step > 0 {
		after = fmt.Sprintf("after step %d", f.Step)
	}
	switch {
	case f.Cause == BadCheckpoint: // no rank has a part in it
		return f.Message
	case f.Reason == reasonLauncherKilled:
		return fmt.Sprintf("the launcher was killed %s: %s", strings.Replace(after, "its", "the", 1), f.Message)
	case f.Rank == events.NoRank && f.Step == 0:
		return "the workers could not be started: " + f.Message
	case f.Rank == events.NoRank:
		return fmt.Sprintf("the launcher failed %s: %s", after, f.Message)
	}
	where := fmt.Sprintf("rank %d", f.Rank)
	if f.Device != "" {
		where += " on " + f.Device
	}
	what := f.Message
	if f.Exception != "" {
		what = strings.TrimSuffix(f.Exception+": "+f.Message, ": ")
	}
	head := fmt.Sprintf("%s failed %s: %s", where, after, firstLine(what))
	if f.UserFrame != "" {
		head += " (" + f.UserFrame + ")"
	}
	return head
}

// rankStory is what is known of one rank at the end of an attempt.
type rankStory struct {
	hello    bool
	host     string
	pid      int
	steps    int
	errors   []seenEvent
	exit     *seenEvent
	gone     *seenEvent
	lastSeen string // phase
}

// seenEvent is an event with its place in the order of arrival.
type seenEvent struct {
	events.Event
	order int
}

// stories gathers what the ranks say.
type stories struct {
	ranks []rankStory
	count int
}

func newStories(ranks int) *stories { return &stories{ranks: make([]rankStory, ranks)} }

// add notes one event.
func (s *stories) add(e events.Event) {
	s.count++
	if e.Rank < 0 || e.Rank >= len(s.ranks) {
		return
	}
	r, seen := &s.ranks[e.Rank], seenEvent{e, s.count}
	switch e.Kind {
	case events.Hello:
		r.hello = true
	case events.Start:
		r.host, r.pid = e.Host, e.PID
	case events.Step, events.Heartbeat, events.Checkpoint: // the latter know of a step that is not reported yet
		r.steps = max(r.steps, e.Step)
	case events.Phase:
		r.lastSeen = e.Phase
	case events.Error:
		r.errors = append(r.errors, seen)
	case events.Exit:
		r.exit = &seen
	case events.Gone:
		r.gone = &seen
	}
}

// steps is the last step that any rank finished.
func (s *stories) steps() int {
	most := 0
	for _, r := range s.ranks {
		most = max(most, r.steps)
	}
	return most
}

// allGone says that no rank is left.
func (s *stories) allGone() bool {
	return !slices.ContainsFunc(s.ranks, func(r rankStory) bool { return r.gone == nil })
}

// allExited says that the script has come to its end, without an error, on every rank,
// so that none left early, even if a process is still there.
func (s *stories) allExited() bool {
	return !slices.ContainsFunc(s.ranks, func(r rankStory) bool { return r.exit == nil || len(r.errors) > 0 })
}

// stoppedByRequest says that the script was ended because it was asked to.
func (s *stories) stoppedByRequest() bool {
	return slices.ContainsFunc(s.ranks, func(r rankStory) bool { return r.exit != nil && r.exit.Phase == exitStopped })
}

// exitStopped is the phase of the exit of a script that was asked to stop.
const exitStopped = "stopped"

// suspect is one rank's earliest sign of failure.
type suspect struct {
	rank, order int
	weight      int // lower is more likely the cause
	failure     Failure
}

// judge names the first real failure. A rank that only lost its peers is a victim, in
// whatever order the reports came in: an exception of the script's own comes first, a
// rank that vanished next, one that left early after that. Among ranks that vanished it is
// the one that torchrun saw die first (killedFirst, or NoRank), since the others were
// ended because of it and their streams may be read in any order.
func (s *stories) judge(outcome supervise.Outcome, killedFirst int) Failure {
	var all []suspect
	for rank, r := range s.ranks {
		if found, ok := r.suspect(rank); ok && !(found.weight == leftEarly && s.allExited()) {
			all = append(all, found)
		}
	}
	if len(all) == 0 && killedFirst >= 0 && killedFirst < len(s.ranks) {
		// It died before it could say hello: torchrun alone has seen it.
		all = append(all, suspect{rank: killedFirst, failure: Failure{Rank: killedFirst, Reason: reasonKilled, Message: diedSilently}})
	}
	if len(all) == 0 {
		return Failure{Rank: events.NoRank, Step: s.steps(), Reason: reasonLauncher, Message: "torchrun " + outcome.Status.String()}
	}
	first := slices.MinFunc(all, func(a, b suspect) int {
		if a.weight != b.weight {
			return a.weight - b.weight
		}
		if a.failure.Reason == reasonKilled && b.failure.Reason == reasonKilled {
			if a.rank == killedFirst {
				return -1
			}
			if b.rank == killedFirst {
				return 1
			}
		}
		return a.order - b.order
	})
	f := first.failure
	for rank := range s.ranks {
		if rank != f.Rank {
			f.Victims = append(f.Victims, rank)
		}
	}
	return f
}

// Weights of suspects.
const (
	ownFault  = iota // an exception that speaks of itself, or a kill
	leftEarly        // exit 0 while others still ran
	lostPeers        // an exception that speaks of others
)

func (r rankStory) suspect(rank int) (suspect, bool) {
	f := Failure{Rank: rank, Host: r.host, Step: r.steps}
	switch {
	case len(r.errors) > 0 && r.errors[0].Exception == interrupted:
		// No script raises it: Python does at a SIGINT, and nobody here sends one to a worker.
		f.Reason, f.Message, f.UserFrame = reasonKilled, interruptedMessage, r.errors[0].UserFrame
		return suspect{rank, r.errors[0].order, ownFault, f}, true
	case len(r.errors) > 0:
		e := r.errors[0]
		f.Reason, f.Exception, f.Message, f.UserFrame = reasonException, e.Exception, e.Message, e.UserFrame
		f.NeedsMemory, f.NeededBytes = e.OutOfMemory, e.NeededBytes
		weight := ownFault
		if own, said, ok := innerFailure(e.Event); ok {
			f.Message = said
			f.NeedsMemory = f.NeedsMemory || own && wantsMemory(said)
			if !own {
				weight, f.ofPeers = lostPeers, true
			}
		} else if !f.NeedsMemory && speaksOfPeers(e.Event) {
			weight, f.ofPeers = lostPeers, true
		}
		return suspect{rank, e.order, weight, f}, true
	case r.exit != nil && r.exit.Code != nil && *r.exit.Code != 0:
		f.Reason, f.Message = reasonException, fmt.Sprintf("the script ended with exit code %d", *r.exit.Code)
		return suspect{rank, r.exit.order, ownFault, f}, true
	case r.exit != nil:
		f.Reason, f.Message = reasonEarlyExit, "the script ended early (exit code 0) while other ranks were still training"
		return suspect{rank, r.exit.order, leftEarly, f}, true
	case r.gone != nil:
		f.Reason, f.Message = reasonKilled, diedSilently
		return suspect{rank, r.gone.order, ownFault, f}, true
	}
	return suspect{}, false
}

// leftEarly is the first rank that ended with 0 by its own doing.
func (s *stories) leftEarly() (Failure, bool) {
	for rank, r := range s.ranks {
		if found, ok := r.suspect(rank); ok && found.weight == leftEarly {
			return found.failure, true
		}
	}
	return Failure{}, false
}
