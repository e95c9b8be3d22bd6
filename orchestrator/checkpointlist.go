package orchestrator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// Checkpoint is one in a listing.
type Checkpoint struct {
	Path  string    `json:"path"`
	Step  int       `json:"step,omitempty"` // 0: not known
	Bytes int64     `json:"bytes"`
	Time  time.Time `json:"time"`
	// Problem says why it is not whole; empty when it is.
	Problem string `json:"problem,omitempty"`
}

// metadataFile is written last by PyTorch, when all else of a checkpoint is there.
const metadataFile = ".metadata"

// CheckpointsOfRun lists the checkpoints that the script of a run saved, oldest first,
// and what lies beside them unfinished.
func CheckpointsOfRun(run *rundir.Run) ([]Checkpoint, error) {
	r, err := recall(run, keptCheckpoints)
	if err != nil {
		return nil, err
	}
	known := map[string]savedCheckpoint{}
	for _, c := range r.Checkpoints {
		known[c.Path] = c
	}
	var all []Checkpoint
	for _, dir := range r.folders() {
		found, err := CheckpointsIn(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, c := range found {
			if k, ok := known[c.Path]; ok {
				c.Step = k.Step
				if why := incomplete(k); why != "" {
					c.Problem = why
				}
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// CheckpointsIn lists the distributed checkpoints in a folder, oldest first. The folder
// itself may be one.
func CheckpointsIn(dir string) ([]Checkpoint, error) {
	if c, ok := checkpointAt(dir); ok {
		return []Checkpoint{c}, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, usage("%s is a file, and must be a folder with checkpoints", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var all []Checkpoint
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if c, ok := checkpointAt(filepath.Join(dir, e.Name())); ok {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b Checkpoint) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// Beginnings of names that a checkpoint has while it is not, or no more, in its place.
const (
	namedSaving   = "saving-"
	namedReplaced = "replaced-"
)

// checkpointAt looks whether a folder is a distributed checkpoint, whole or not.
func checkpointAt(dir string) (Checkpoint, bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Checkpoint{}, false
	}
	c := Checkpoint{Path: dir, Problem: metadataFile + " is missing: it is written last"}
	is := false // by the names of its files
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name())) // what a link names counts
		if err != nil || info.IsDir() {
			continue
		}
		c.Bytes += info.Size()
		if info.ModTime().After(c.Time) {
			c.Time = info.ModTime()
		}
		if e.Name() == metadataFile {
			c.Problem = lacks(dir, info)
		}
		is = is || e.Name() == metadataFile || strings.HasSuffix(e.Name(), ".distcp")
	}
	name := filepath.Base(dir)
	switch {
	case strings.HasPrefix(name, namedSaving):
		c.Problem = "it was being saved"
	case strings.HasPrefix(name, setAside):
		c.Problem = "it was set aside because it is incomplete"
	case strings.HasPrefix(name, namedReplaced):
		c.Problem = "a newer one takes its place"
	}
	return c, is
}

// CheckpointTable lists checkpoints for a person.
func CheckpointTable(all []Checkpoint) string {
	var rows [][]string
	for _, c := range all {
		step, state := "-", "whole"
		if c.Step > 0 {
			step = fmt.Sprint(c.Step)
		}
		if c.Problem != "" {
			state = "incomplete: " + c.Problem
		}
		rows = append(rows, []string{c.Path, step, show.Bytes(c.Bytes), c.Time.Format(time.DateTime), state})
	}
	return show.TableOf([]string{"checkpoint", "step", "size", "saved", "state"}, rows, 0, 3, 4)
}
