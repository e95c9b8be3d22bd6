package orchestrator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// written makes a checkpoint of two files as a run would have noted it.
func written(t *testing.T, dir, name string, placed bool) savedCheckpoint {
	t.Helper()
	path := filepath.Join(dir, name)
	files := map[string]int64{}
	for _, file := range []string{metadataFile, "inner/shard"} {
		at := filepath.Join(path, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("12345678"), 0o644); err != nil {
			t.Fatal(err)
		}
		files[file] = 8
	}
	return savedCheckpoint{Path: path, Files: files, Placed: placed}
}

// User case 56: which of them go.
func TestUserCase56WhatIsSurplus(t *testing.T) {
	for name, c := range map[string]struct {
		keep  int
		spoil func(*restarts)
		want  []string
	}{
		"one too many":                 {3, func(*restarts) {}, []string{"a"}},
		"keep one":                     {1, func(*restarts) {}, []string{"a", "b", "c"}},
		"keep more than there are":     {9, func(*restarts) {}, nil},
		"incomplete ones do not count": {2, func(r *restarts) { _ = os.Truncate(filepath.Join(r.Checkpoints[3].Path, "inner/shard"), 1) }, []string{"a"}},
		"the newest is broken":         {1, func(r *restarts) { r.Checkpoints[3].Broken = "x" }, []string{"a", "b"}},
		"not written by us":            {1, func(r *restarts) { r.Checkpoints[0].Placed = false }, []string{"b", "c"}},
		"all but one are incomplete": {1, func(r *restarts) {
			for _, c := range r.Checkpoints[1:] {
				_ = os.Remove(filepath.Join(c.Path, metadataFile))
			}
		}, nil},
		"left by an earlier supervisor": {4, func(r *restarts) { r.Checkpoints[1].Removing = true }, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, r := t.TempDir(), &restarts{}
			for _, name := range []string{"a", "b", "c", "d"} {
				r.Checkpoints = append(r.Checkpoints, written(t, dir, name, true))
			}
			c.spoil(r)
			var got []string
			for _, one := range r.surplus(c.keep) {
				got = append(got, filepath.Base(one.Path))
				if kept, err := one.remove(); kept || err != nil {
					t.Errorf("%s: kept %v, %v", one.Path, kept, err)
				}
				if _, err := os.Lstat(one.Path); !os.IsNotExist(err) {
					t.Errorf("%s is still there: %v", one.Path, err)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("surplus %v, want %v", got, c.want)
			}
		})
	}
}

// User case 56: a link that somebody put in a checkpoint's place is not followed.
func TestUserCase56ALinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	real := written(t, dir, "elsewhere", true)
	link := real
	link.Path = filepath.Join(dir, "link")
	if err := os.Symlink(real.Path, link.Path); err != nil {
		t.Fatal(err)
	}
	if kept, err := link.remove(); !kept || err != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if why := incomplete(real); why != "" {
		t.Errorf("what it pointed to: %s", why)
	}
}

// What was removed on purpose is not taken for a checkpoint again from the journal.
func TestReplayForgetsWhatWasRemoved(t *testing.T) {
	now := time.Unix(1000, 0).UTC()
	r := &restarts{Checkpoints: []savedCheckpoint{{Path: "/c/b", Step: 2, Time: now}}}
	line := func(path string, step int, at time.Time) string {
		data, err := json.Marshal(events.Event{Kind: events.Checkpoint, Phase: checkpointSaved, Path: path, Step: step, Time: at})
		if err != nil {
			t.Fatal(err)
		}
		return string(data) + "\n"
	}
	r.replay([]byte(line("/c/a", 1, now.Add(-time.Second))+line("/c/b", 2, now)+line("/c/c", 3, now.Add(time.Second))), keptCheckpoints)
	var steps []int
	for _, c := range r.Checkpoints {
		steps = append(steps, c.Step)
	}
	if !slices.Equal(steps, []int{2, 3}) {
		t.Errorf("steps %v", steps)
	}
}

// What lies in another storage cannot be looked at, and is not taken for gone.
func TestACheckpointElsewhereIsNotGone(t *testing.T) {
	for path, gone := range map[string]bool{"s3://bucket/step-7": false, "/none/step-7": true} {
		r := restarts{Checkpoints: []savedCheckpoint{{Path: path, Step: 7}}}
		if why := r.nothingLeft(); (why != "") != gone {
			t.Errorf("%s: %q", path, why)
		}
	}
	if why := (&restarts{}).nothingLeft(); why != "" {
		t.Errorf("nothing was saved: %q", why)
	}
}
