package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kept are the names in the folder of the newest run's checkpoints.
func (b *bench) kept() []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "state", "runs", "latest", "checkpoints"))
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// User case 56: so many whole checkpoints are kept; one that is not whole does not count,
// and nothing is touched that the run did not save.
func TestUserCase56OnlySoManyCheckpointsAreKept(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 1\nsave\nsteps 2\nsave\nsteps 3\nsave\nown other\nsteps 4\nsave\nown step-004/notes\nsteps 5\nsave\ncut shard\nsteps 6\nsave\nsteps 7\nsave\nsteps 8\nsave\n",
		[]string{"done after 8 steps", "step-004 stays: it holds files that were not saved with it"}, "--keep-checkpoints", "2")
	if got, want := b.kept(), []string{"other", "step-004", "step-005", "step-007", "step-008"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	notes := filepath.Join(b.dir, "state", "runs", "latest", "checkpoints", "step-004", "notes")
	if entries, err := os.ReadDir(filepath.Dir(notes)); err != nil || len(entries) != 1 {
		t.Errorf("beside the script's own file: %v, %v", entries, err)
	}
}

// User case 56: "keep 2" keeps two, also over a restart that finds the newest incomplete.
func TestUserCase56KeepTwoOverARestart(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, keptOverARestart, []string{"done after 8 steps"}, resume, "--keep-checkpoints", "2", "--max-restarts", "1")
	if names := b.kept(); !slices.Contains(names, "step-008") {
		t.Errorf("the newest is not there: %v", names)
	}
}

const keptOverARestart = "steps 3\nsave\nsteps 5\nsave\nuntil 1 cut shard\nuntil 1 kill 1\nsteps 8\nsave\n"

// With "keep 1" it depends on what came first: cut short before the older one was to go, the newest
// does not count and the older one stays; after that nothing is left, and the run ends.
func TestUserCase56KeepOneNeverBeginsAgain(t *testing.T) {
	b := newBench(t)
	code := b.run("--devices", b.devices(), resume, "--keep-checkpoints", "1", b.file("train.py", "measure float32\nresume\n"+keptOverARestart))
	ended := code == exitScript && strings.Contains(b.err.String(), "no checkpoint of this run is left whole")
	wentOn := code == exitDone && strings.Contains(b.err.String(), "goes on after step 3") && slices.Contains(b.kept(), "step-008")
	if !ended && !wentOn {
		t.Errorf("exit code %d, kept %v: %s", code, b.kept(), b.err)
	}
}
