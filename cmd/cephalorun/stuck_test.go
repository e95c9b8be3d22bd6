package main

import (
	"testing"
	"time"
)

// User cases 19 and 30: a rank does not come; it is named within the limit, with where
// each rank is, its stacks are dumped, and the run is brought back.
func TestUserCase30ARankThatHoldsTheOthersUp(t *testing.T) {
	b := newBench(t)
	began := time.Now()
	b.train(exitDone, "steps 3\nsave\nuntil 1 hang 1\nsteps 8\n", []string{
		"restart 1 of 3: stuck: rank 1 on cpu device slow failed after step 3: it holds the others up, no rank has gone on for",
		"rank 0 waits for the gather of Block 2 in forward after step 3; rank 1 is in script after step 3",
		"the stacks of the ranks are in", "stacks-rank-*.txt", "done after 8 steps",
	}, resume, "--stuck-after", "300ms")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	if n := len(b.journal("stacks", "path")); n != 2 {
		t.Errorf("%d ranks wrote their stacks", n)
	}
	if n := len(b.journal("heartbeat", "phase")); n != 0 {
		t.Errorf("%d heartbeats in the journal", n)
	}
}

// A rank inside of a loop of C's cannot write where it is.
func TestAStackThatIsMissingIsNamed(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nuntil 1 hang 1 deaf\nsteps 5\n", []string{"stacks-rank-*.txt; not that of rank 1, which did not answer", "done after 5 steps"},
		resume, "--stuck-after", "500ms")
}

// Without an answer the run still ends within bounds.
func TestUserCase30AgainAndAgain(t *testing.T) {
	b := newBench(t)
	b.train(exitGaveUp, "steps 3\nsave\nhang 0\n", []string{"gave up after 1 restart: rank 0"}, resume, "--stuck-after", "200ms", "--max-restarts", "1")
}
