package main

import (
	"os"
	"path/filepath"
	"slices"
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

// User case 56: "keep 1" keeps one, also over a restart that finds it incomplete.
func TestUserCase56KeepOneKeepsTheNewestWholeOne(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nsteps 5\nsave\nuntil 1 cut shard\nuntil 1 kill 1\nsteps 8\nsave\n",
		[]string{"done after 8 steps"}, resume, "--keep-checkpoints", "1", "--max-restarts", "1")
	if names := b.kept(); !slices.Contains(names, "step-008") {
		t.Errorf("the newest is not there: %v", names)
	}
}
