package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// twoThatTrain is a watch over two ranks that have done 12 steps by the time that is returned.
func twoThatTrain() (*watch, time.Time) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWatch(2, time.Minute, firstStepLimit, at)
	for rank := range 2 {
		w.take(events.Event{Kind: events.Start, Rank: rank}, at)
		w.take(events.Event{Kind: events.Step, Rank: rank, Step: 12, StepMs: 10}, at)
	}
	return w, at
}

// User case 60: one rank saves and the others do not: it is named with where it is.
func TestUserCase60ASaveThatOnlyOneRankMakes(t *testing.T) {
	w, at := twoThatTrain()
	// Rank 0 waits within its save for the others, which train on and wait for it.
	beats := []events.Event{
		{Kind: events.Heartbeat, Rank: 0, Step: 12, Phase: "save", Collective: "barrier", Moves: 5},
		{Kind: events.Heartbeat, Rank: 1, Step: 12, Phase: "forward", Unit: "Block 0", Collective: "gather", Moves: 9},
	}
	for _, d := range []time.Duration{0, 59 * time.Second, 601 * time.Second} {
		for _, e := range beats {
			w.take(e, at.Add(d))
		}
		f, stuck := w.stuck(at.Add(d))
		if stuck != (d > time.Minute) || stuck && (f.Rank != 0 || !strings.Contains(f.Message, "rank 0 waits for the barrier in save") || !strings.Contains(f.Message, "rank 1 waits for the gather of Block 0 in forward")) {
			t.Errorf("after %s: %v, %+v", d, stuck, f)
		}
	}
}

// A rank that has ended well is silent, and nobody waits for it.
func TestARankThatHasEndedHoldsNobodyUp(t *testing.T) {
	w, at := twoThatTrain()
	for rank := range 2 {
		w.take(events.Event{Kind: events.Heartbeat, Rank: rank, Step: 12, Phase: "script", Moves: 5}, at)
	}
	w.take(events.Event{Kind: events.Exit, Rank: 0}, at)
	w.take(events.Event{Kind: events.Gone, Rank: 0}, at)
	late := at.Add(time.Hour)
	w.take(events.Event{Kind: events.Heartbeat, Rank: 1, Step: 12, Phase: "script", Moves: 5}, late)
	if f, stuck := w.stuck(late); !stuck || f.Rank != 1 || !strings.Contains(f.Message, "rank 0 has ended after step 12") {
		t.Errorf("stuck %v: %+v", stuck, f)
	}
}

// Of a rank that never said anything, nobody can say since when it is silent.
func TestARankThatNeverCameUp(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWatch(2, time.Minute, firstStepLimit, at)
	w.take(events.Event{Kind: events.Start, Rank: 0}, at)
	if f, stuck := w.stuck(at.Add(initLimit + time.Second)); !stuck || f.Rank != 1 || !strings.Contains(f.Message, "rank 1 has not come up") {
		t.Errorf("stuck %v: %+v", stuck, f)
	}
}

// Before the first step the ranks have long, but not for one that is not there any more.
func TestARankThatEndsBeforeTheFirstStepIsNotWaitedForLong(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWatch(2, time.Minute, firstStepLimit, at)
	for rank := range 2 {
		w.take(events.Event{Kind: events.Start, Rank: rank}, at)
	}
	late := at.Add(2 * time.Minute)
	if _, stuck := w.stuck(late); stuck {
		t.Error("stuck while both are there")
	}
	w.take(events.Event{Kind: events.Exit, Rank: 1, Code: code(0)}, at)
	if _, stuck := w.stuck(at.Add(59 * time.Second)); stuck {
		t.Error("stuck at once")
	}
	if _, stuck := w.stuck(late); !stuck {
		t.Error("waits for a rank that has ended")
	}
}

func TestUserCase19WhoHoldsTheOthersUp(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	beat := func(rank, step int, phase, unit, collective string, moves int64) events.Event {
		return events.Event{Kind: events.Heartbeat, Rank: rank, Step: step, Phase: phase, Unit: unit, Collective: collective, Moves: moves}
	}
	step := func(rank int, ms float64) events.Event {
		return events.Event{Kind: events.Step, Rank: rank, Step: 12, StepMs: ms}
	}
	cases := map[string]struct {
		events []events.Event
		after  time.Duration
		rank   int // -1: not stuck
		says   string
	}{
		"a rank in its own code, another in a collective": {
			[]events.Event{step(0, 100), step(1, 100), beat(0, 12, "forward", "Block 7", "gather", 5), beat(1, 12, "script", "", "", 4)},
			61 * time.Second, 1, "rank 0 waits for the gather of Block 7 in forward after step 12"},
		"not before the limit": {
			[]events.Event{step(0, 100), step(1, 100), beat(0, 12, "forward", "Block 7", "gather", 5), beat(1, 12, "script", "", "", 4)},
			59 * time.Second, -1, ""},
		"long steps have a longer limit": {
			[]events.Event{step(0, 10_000), step(1, 10_000), beat(0, 12, "forward", "Block 7", "gather", 5), beat(1, 12, "script", "", "", 4)},
			99 * time.Second, -1, ""},
		"both in a collective: the one that has come least far": {
			[]events.Event{step(0, 100), step(1, 100), beat(0, 12, "backward", "Block 1", "reduction", 5), beat(1, 12, "backward", "Block 0", "gather", 9)},
			61 * time.Second, 0, "rank 1 waits for the gather of Block 0"},
		"user case 60: a save may take longer": {
			[]events.Event{step(0, 100), step(1, 100), beat(0, 12, "save", "", "", 5), beat(1, 12, "forward", "Block 0", "gather", 9)},
			120 * time.Second, -1, ""},
		"user case 60: but not for ever": {
			[]events.Event{step(0, 100), step(1, 100), beat(0, 12, "save", "", "", 5), beat(1, 12, "forward", "Block 0", "gather", 9)},
			601 * time.Second, 0, "rank 0 is in save"},
		"an evaluation may take longer": {
			[]events.Event{step(0, 100), step(1, 100), beat(0, 12, "evaluation", "Block 0", "", 5), beat(1, 12, "forward", "Block 0", "gather", 9)},
			120 * time.Second, -1, ""},
		"all in the script's own code may take longer": {
			[]events.Event{step(0, 100), step(1, 100), beat(0, 12, "script", "", "", 5), beat(1, 12, "script", "", "", 9)},
			120 * time.Second, -1, ""},
		"the first step may take longer": {
			[]events.Event{beat(0, 0, "forward", "Block 0", "gather", 5), beat(1, 0, "script", "", "", 9)}, 600 * time.Second, -1, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWatch(2, time.Minute, firstStepLimit, at)
			for rank := range 2 {
				w.take(events.Event{Kind: events.Start, Rank: rank}, at)
			}
			for _, e := range c.events {
				w.take(e, at)
			}
			for _, e := range c.events { // they go on sending the same
				if e.Kind == events.Heartbeat {
					w.take(e, at.Add(c.after))
				}
			}
			f, stuck := w.stuck(at.Add(c.after))
			if stuck != (c.rank >= 0) || stuck && (f.Rank != c.rank || !strings.Contains(f.Message, c.says)) {
				t.Errorf("stuck %v: %+v", stuck, f)
			}
		})
	}
}

// Measuring has no steps: a rank that was stopped there would be waited for in silence.
func TestARankThatStandsStillBeforeTheFirstStep(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		stopped, silent bool
		limit           time.Duration
	}{
		"stopped":                 {true, true, time.Minute},
		"silent":                  {false, true, patience * time.Minute},
		"both say where they are": {false, false, firstStepLimit},
	} {
		w := newWatch(2, time.Minute, firstStepLimit, at)
		w.stopped = func(pid int) bool { return c.stopped && pid == 101 }
		for rank := range 2 {
			w.take(events.Event{Kind: events.Start, Rank: rank, PID: 100 + rank}, at)
			w.take(events.Event{Kind: events.Heartbeat, Rank: rank, Phase: "script", Moves: 1}, at)
		}
		look := func(after time.Duration) (Failure, bool) {
			for rank := range 2 {
				if rank == 0 || !c.silent {
					w.take(events.Event{Kind: events.Heartbeat, Rank: rank, Phase: "script", Moves: 1}, at.Add(after))
				}
			}
			return w.stuck(at.Add(after))
		}
		if f, stuck := look(c.limit); stuck {
			t.Errorf("%s: stuck too soon: %+v", name, f)
		}
		if f, stuck := look(c.limit + time.Second); !stuck || c.silent && f.Rank != 1 {
			t.Errorf("%s: stuck %v: %+v", name, stuck, f)
		}
	}
}

func TestASilentRankHoldsTheOthersUp(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWatch(2, time.Minute, firstStepLimit, at)
	gather := func(rank int) events.Event {
		return events.Event{Kind: events.Heartbeat, Rank: rank, Step: 3, Phase: "forward", Collective: "gather", Moves: 4}
	}
	for rank := range 2 {
		w.take(events.Event{Kind: events.Start, Rank: rank}, at)
		w.take(events.Event{Kind: events.Step, Rank: rank, Step: 3, StepMs: 10}, at)
		w.take(gather(rank), at)
	}
	later := at.Add(61 * time.Second)
	w.take(gather(0), later)
	if f, stuck := w.stuck(later); !stuck || f.Rank != 1 || !strings.Contains(f.Message, "rank 1 is silent for 61 s after step 3") ||
		!strings.Contains(f.Message, "before that it waited for the gather in forward") || strings.Contains(f.Message, "rank 1 waits") {
		t.Errorf("stuck %v: %+v", stuck, f)
	}
}

// A rank that has missed a heartbeat or two may not be there any more where it said it was.
func TestAnOldPlaceIsSaidToBeOld(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, p := range map[string]place{
		"is in forward after step 3":                                        {seen: at.Add(-1500 * time.Millisecond), phase: "forward", step: 3},
		"is in forward after step 3 (as it said 4 s ago)":                   {seen: at.Add(-4 * time.Second), phase: "forward", step: 3},
		"waits for the gather in forward after step 3 (as it said 2 s ago)": {seen: at.Add(-2 * time.Second), phase: "forward", step: 3, collective: "gather"},
	} {
		if got := p.text(at); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The others may well wait for it in a collective of the script's own.
func TestASilentRankGetsNoPatience(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWatch(2, time.Minute, firstStepLimit, at)
	beat := func(rank int) events.Event {
		return events.Event{Kind: events.Heartbeat, Rank: rank, Step: 3, Phase: "script", Moves: 4}
	}
	for rank := range 2 {
		w.take(events.Event{Kind: events.Start, Rank: rank}, at)
		w.take(events.Event{Kind: events.Step, Rank: rank, Step: 3, StepMs: 10}, at)
		w.take(beat(rank), at)
	}
	later := at.Add(61 * time.Second)
	w.take(beat(0), later)
	if f, stuck := w.stuck(later); !stuck || f.Rank != 1 {
		t.Errorf("stuck %v: %+v", stuck, f)
	}
}

func TestARankThatComputesIsNotStuck(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWatch(2, time.Minute, firstStepLimit, at)
	for rank := range 2 {
		w.take(events.Event{Kind: events.Start, Rank: rank}, at)
		w.take(events.Event{Kind: events.Step, Rank: rank, Step: 3, StepMs: 10}, at)
	}
	beats := func(now time.Time, cpuMs float64) {
		w.take(events.Event{Kind: events.Heartbeat, Rank: 0, Phase: "forward", Collective: "gather", Moves: 4, CPUMs: 10}, now)
		w.take(events.Event{Kind: events.Heartbeat, Rank: 1, Phase: "script", Moves: 4, CPUMs: cpuMs}, now)
	}
	beats(at, 1000)
	later := at.Add(90 * time.Second)
	beats(later, 1000+80_000)
	if f, stuck := w.stuck(later); stuck {
		t.Errorf("stuck: %+v", f)
	}
}

// The machine was suspended, or starved by its host: nobody could move, and nobody is blamed.
func TestAMachineThatStoodStillIsNotARankThatDid(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWatch(2, time.Minute, firstStepLimit, at)
	beats := func(now time.Time) {
		for rank := range 2 {
			w.take(events.Event{Kind: events.Heartbeat, Rank: rank, Step: 3, Phase: "forward", Collective: "gather", Moves: 4}, now)
		}
	}
	for rank := range 2 {
		w.take(events.Event{Kind: events.Start, Rank: rank}, at)
		w.take(events.Event{Kind: events.Step, Rank: rank, Step: 3, StepMs: 10}, at)
	}
	beats(at)
	w.look(at.Add(time.Second))
	woken := at.Add(time.Hour)
	w.look(woken)
	if f, stuck := w.stuck(woken); stuck {
		t.Errorf("stuck: %+v", f)
	}
	for n := range 62 {
		now := woken.Add(time.Duration(n) * time.Second)
		w.look(now)
		beats(now)
	}
	if _, stuck := w.stuck(woken.Add(61 * time.Second)); !stuck {
		t.Error("not stuck, though the ranks have stood still since")
	}
}
