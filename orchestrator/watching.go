package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

// How long ranks may stand still before they count as stuck.
const (
	// initLimit is for workers to come up.
	initLimit = 120 * time.Second
	// firstStepLimit is for loading, compiling and the first step, and firstStepTimes by
	// how much more a later attempt may take for it than the first one did.
	firstStepTimes = 5
	firstStepLimit = 20 * time.Minute
	// stuckSteps is how many median steps are allowed.
	stuckSteps = 10
	// patience is by how much more is allowed while a rank saves, loads, evaluates, or
	// computes outside of any collective.
	patience = 10
	// beatEvery is the pause between two heartbeats of a worker.
	beatEvery = time.Second
	// beatLimit is how old a heartbeat may be before the rank counts as silent.
	beatLimit = 5 * time.Second
	// lateLimit is by how much our own look at the ranks may be late before it is the
	// machine that stands still (suspended, or starved by its host).
	lateLimit = 5 * time.Second
	// keptSteps is how many step times the median is taken of.
	keptSteps = 21
)

// Phases that a worker is in.
const (
	phaseSave = "save"
	phaseLoad = "load"
	phaseEval = "evaluation"
)

// place is where a rank was last seen.
type place struct {
	seen       time.Time
	step       int
	phase      string
	unit       string
	collective string
	moves      int64
	cpuMs      float64
	cpuAtMove  float64 // when the group last moved
	pid        int     // 0: not known yet
	ended      bool
}

// watch notices that the ranks of an attempt stand still.
type watch struct {
	// Configuration, never modified.
	least time.Duration // --stuck-after
	first time.Duration // for the first step, and for measuring
	// stopped says that a process stands still because somebody stopped it.
	stopped func(pid int) bool

	// State, of one goroutine.
	begun   time.Time
	looked  time.Time // when the ranks were last looked at; zero at first
	moved   time.Time // when any rank last moved
	started []bool
	places  []place
	stepMs  []float64
}

func newWatch(ranks int, least, first time.Duration, now time.Time) *watch {
	return &watch{least: least, first: first, stopped: isStopped, begun: now, moved: now,
		started: make([]bool, ranks), places: make([]place, ranks)}
}

// isStopped says that a process was stopped, by SIGSTOP or by a debugger.
func isStopped(pid int) bool {
	p, err := supervise.ReadProcess(pid)
	return err == nil && (p.State == "T" || p.State == "t")
}

// take notes an event. Any event but a heartbeat is a move; a heartbeat is one when the
// rank has gone on since the last one.
func (w *watch) take(e events.Event, now time.Time) {
	if e.Rank < 0 || e.Rank >= len(w.places) {
		return
	}
	p := &w.places[e.Rank]
	p.seen = now
	switch e.Kind {
	case events.Heartbeat:
		same := p.moves == e.Moves
		p.step, p.phase, p.unit, p.collective, p.moves, p.cpuMs = max(p.step, e.Step), e.Phase, e.Unit, e.Collective, e.Moves, e.CPUMs
		if same {
			return
		}
	case events.Start:
		w.started[e.Rank], p.pid = true, e.PID
	case events.Step:
		p.step = e.Step
		w.stepMs = append(w.stepMs, e.StepMs)
		if n := len(w.stepMs) - keptSteps*len(w.places); n > 0 {
			w.stepMs = w.stepMs[n:]
		}
	case events.Gone, events.Exit:
		p.ended = true
		return // the end of a rank moves nobody
	case events.Stacks:
		return
	}
	w.moved = now
	for i := range w.places {
		w.places[i].cpuAtMove = w.places[i].cpuMs
	}
}

// look notes that the ranks are looked at now. Time in which nobody ran is not held against
// them.
func (w *watch) look(now time.Time) {
	if gap := now.Sub(w.looked); !w.looked.IsZero() && gap > lateLimit {
		w.moved = w.moved.Add(gap)
		for i := range w.places {
			if !w.places[i].seen.IsZero() {
				w.places[i].seen = w.places[i].seen.Add(gap)
			}
		}
	}
	w.looked = now
}

// allowance is how long the ranks may stand still now.
func (w *watch) allowance(now time.Time) time.Duration {
	if slices.Contains(w.started, false) {
		return initLimit
	}
	if len(w.stepMs) == 0 {
		return w.beforeSteps(now)
	}
	sorted := slices.Sorted(slices.Values(w.stepMs))
	limit := max(w.least, stuckSteps*time.Duration(sorted[len(sorted)/2]*float64(time.Millisecond)))
	if w.oneIsSilent(now) {
		return limit // whatever it was doing, it does not any more
	}
	waits := false
	for _, p := range w.places {
		waits = waits || p.collective != ""
		if p.phase == phaseSave || p.phase == phaseLoad || p.phase == phaseEval || w.works(p, now) {
			return patience * limit
		}
	}
	if !waits && w.beats() { // all are in the script's own code
		return patience * limit
	}
	return limit
}

// beforeSteps is the allowance for measuring, loading, compiling and the first step.
func (w *watch) beforeSteps(now time.Time) time.Duration {
	switch {
	case w.oneEnded() || slices.ContainsFunc(w.places, func(p place) bool { return p.pid != 0 && w.stopped(p.pid) }):
		return w.least // the others may wait for it for ever
	case w.oneIsSilent(now):
		return min(w.first, patience*w.least) // what loads or compiles may keep Python's lock
	}
	return w.first
}

// oneIsSilent says that a rank has stopped sending heartbeats, as when it is stopped.
func (w *watch) oneIsSilent(now time.Time) bool {
	return slices.ContainsFunc(w.places, func(p place) bool { return p.phase != "" && !p.ended && p.silent(now) })
}

// works says that a rank outside of collectives uses the processor.
func (w *watch) works(p place, now time.Time) bool {
	still := float64(now.Sub(w.moved).Milliseconds())
	return p.collective == "" && still > 0 && now.Sub(p.seen) < beatLimit && (p.cpuMs-p.cpuAtMove)/still > 0.2
}

// oneEnded says that a rank has come to its end.
func (w *watch) oneEnded() bool {
	return slices.ContainsFunc(w.places, func(p place) bool { return p.ended })
}

// beats says that some rank sends heartbeats.
func (w *watch) beats() bool {
	return slices.ContainsFunc(w.places, func(p place) bool { return p.phase != "" })
}

// stuck says which rank holds the others up, once they stand still for too long.
func (w *watch) stuck(now time.Time) (Failure, bool) {
	still := now.Sub(w.moved)
	if still <= w.allowance(now) {
		return Failure{}, false
	}
	rank := w.behind(now)
	var where []string
	for i, p := range w.places {
		where = append(where, fmt.Sprintf("rank %d %s", i, p.text(now)))
	}
	f := Failure{Rank: rank, Step: w.places[rank].step, Reason: reasonStuck,
		Message: fmt.Sprintf("it holds the others up, no rank has gone on for %.0f s: %s", still.Seconds(), strings.Join(where, "; "))}
	for i := range w.places {
		if i != rank {
			f.Victims = append(f.Victims, i)
		}
	}
	return f, true
}

// behind is the rank that the others wait for: one that never came up, else a silent one,
// else one that waits for nobody, else the one that has come least far.
func (w *watch) behind(now time.Time) int {
	order := make([]int, len(w.places))
	for i := range order {
		order[i] = i
	}
	key := func(p place) [4]int64 {
		k := [4]int64{1, 1, int64(p.step), p.moves}
		if p.silent(now) {
			k[0] = 0
		}
		if p.seen.IsZero() {
			k[0] = -1
		}
		if p.ended {
			k[0] = 2 // nobody waits for it any more
		}
		if p.collective == "" {
			k[1] = 0
		}
		return k
	}
	return slices.MinFunc(order, func(a, b int) int {
		ka, kb := key(w.places[a]), key(w.places[b])
		return slices.Compare(ka[:], kb[:])
	})
}

func (p place) silent(now time.Time) bool { return now.Sub(p.seen) > beatLimit }

// text says where a rank is, as far as that is known: what a silent one said last is of
// before it went silent.
func (p place) text(now time.Time) string {
	after := fmt.Sprintf("after step %d", p.step)
	switch {
	case p.seen.IsZero():
		return "has not come up"
	case p.ended:
		return "has ended " + after
	case p.silent(now) && p.phase == "":
		return fmt.Sprintf("has not said where it is %s, and is silent for %.0f s", after, now.Sub(p.seen).Seconds())
	case p.silent(now):
		doing := "was"
		if p.collective != "" {
			doing = "waited for the " + p.collective
		}
		return fmt.Sprintf("is silent for %.0f s %s, as one that was stopped or runs code which keeps Python's lock (GIL): "+
			"where it is now is not known, and before that it %s%s", now.Sub(p.seen).Seconds(), after, doing, p.where())
	case p.collective != "":
		return "waits for the " + p.collective + p.where() + " " + after + p.age(now)
	case p.where() == "":
		return "has not said where it is " + after
	default:
		return "is" + p.where() + " " + after + p.age(now)
	}
}

// age says how old a rank's word is, when it should have sent another one since.
func (p place) age(now time.Time) string {
	if age := now.Sub(p.seen); age >= 2*beatEvery {
		return fmt.Sprintf(" (as it said %.0f s ago)", age.Seconds())
	}
	return ""
}

// where is the unit and the phase, each with a blank before it.
func (p place) where() string {
	var text string
	if p.unit != "" {
		text += " of " + p.unit
	}
	if p.phase != "" {
		text += " in " + p.phase
	}
	return text
}
