package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// Phases of a checkpoint event.
const (
	checkpointSaved   = "saved"
	checkpointFailed  = "failed"
	checkpointLoaded  = "loaded"
	checkpointAble    = "can-save" // the script registered a function that saves
	checkpointRemoved = "removed"  // by the supervisor, which keeps so many only

	checkpointNotLoaded = "not-loaded" // loading it failed, on any rank
	checkpointShared    = "shared"     // another process saves into the folder too
)

// keptCheckpoints is how many of a run's checkpoints are remembered, at the least.
const keptCheckpoints = 50

// hearResume notes after which step the script goes on.
func (s *session) hearResume(e events.Event) {
	if e.Rank != 0 {
		return
	}
	s.resumedAt = e.Step
	s.sayLoaded()
	if e.Step > 0 {
		s.screen.say("the script goes on after step %d", e.Step)
	}
	s.restarts.BestStep = max(s.restarts.BestStep, e.Step)
}

// hearCheckpoint keeps what the script saved or loaded, for the next attempt.
func (s *session) hearCheckpoint(e events.Event) {
	switch e.Phase {
	case checkpointNotLoaded:
		s.notLoaded = e.Path
		return
	case checkpointShared:
		if slices.Contains(s.sharedWith, e.Path) {
			return // as an earlier attempt has said
		}
		s.sharedWith = append(s.sharedWith, e.Path)
		s.screen.say("note: another run saves checkpoints into %s too: those of one name take each other's place; give each run a folder of its own", e.Path)
		return
	}
	if e.Rank != 0 {
		return
	}
	r := s.restarts
	switch e.Phase {
	case checkpointAble:
		s.canSave = true
		return
	case checkpointFailed:
		r.SaveFailed, r.SaveCause = firstLine(e.Message), e.Cause
		s.screen.say("note: the checkpoint %s could not be saved: %s; the training goes on", e.Path, r.SaveFailed)
	case checkpointSaved, checkpointLoaded:
		if e.Phase == checkpointLoaded {
			s.loaded = append(s.loaded, e.Path)
		}
		r.keep(e, s.remembered())
		if e.Phase == checkpointSaved {
			r.progress(e.Step)
			s.comeback.saved = true
			if !elsewhere(e.Path) {
				s.host.AlsoDisk(filepath.Dir(e.Path))
			}
			if s.better != nil {
				s.better.saved = true
			}
			s.rotate()
		}
	default:
		return
	}
	s.unkept.say(s.screen, r.write(s.run))
}

// remembered is how many checkpoints are: all that are kept, and those that are to go.
func (s *session) remembered() int { return max(keptCheckpoints, 2*s.spec.KeepCheckpoints) }

// keep notes a checkpoint that was saved or loaded.
func (r *restarts) keep(e events.Event, most int) {
	known := slices.ContainsFunc(r.Checkpoints, func(c savedCheckpoint) bool { return c.Path == e.Path })
	if e.Phase == checkpointLoaded && known {
		return // its step is known from its save
	}
	r.Checkpoints = slices.DeleteFunc(r.Checkpoints, func(c savedCheckpoint) bool { return c.Path == e.Path })
	r.Checkpoints = append(r.Checkpoints, savedCheckpoint{Path: e.Path, Step: e.Step, Time: e.Time, Files: e.Files, Placed: e.Phase == checkpointSaved && e.Placed})
	if n := len(r.Checkpoints) - most; n > 0 {
		r.Checkpoints = r.Checkpoints[n:]
	}
	if e.Phase == checkpointSaved {
		r.SaveFailed, r.SaveCause = "", ""
	}
}

// replay learns from the journal what restarts.json had no time to hold when the
// supervisor ended: how far the training was, and what the script saved last.
func (r *restarts) replay(journal []byte, most int) {
	var known time.Time // what was saved before is noted, or is gone on purpose
	for _, c := range r.Checkpoints {
		if c.Time.After(known) {
			known = c.Time
		}
	}
	for _, line := range bytes.Split(journal, []byte("\n")) {
		var e events.Event
		if json.Unmarshal(line, &e) != nil {
			continue // cut off with the supervisor
		}
		switch {
		case e.Kind == events.PlanMade && r.GlobalBatch == 0:
			r.GlobalBatch = e.Samples
		case e.Kind == events.Step:
			r.BestStep = max(r.BestStep, e.Step)
		case e.Kind == events.Checkpoint && e.Rank == 0 && e.Phase == checkpointSaved && e.Time.After(known):
			r.keep(e, most)
		}
	}
}

// saves says that the script is known to save checkpoints.
func (s *session) saves() bool { return s.canSave || s.restarts.newest() != nil }

// newest is the newest checkpoint that can be used; nil without one.
func (r *restarts) newest() *savedCheckpoint {
	for i := len(r.Checkpoints) - 1; i >= 0; i-- {
		if c := r.Checkpoints[i]; c.Broken == "" && !c.Removing {
			return &r.Checkpoints[i]
		}
	}
	return nil
}

// nothingLeft says why no script can go on from the checkpoints that were saved: all are
// gone or not whole, and no other one lies beside them. Empty where one can, and where none is
// known. Nothing is changed.
func (r *restarts) nothingLeft() string {
	known := map[string]bool{}
	var newest savedCheckpoint
	for _, c := range r.Checkpoints {
		known[c.Path], newest = true, c
		replaced := c // the name is given back before the script looks
		replaced.Path = filepath.Join(filepath.Dir(c.Path), namedReplaced+filepath.Base(c.Path))
		if c.Broken == "" && !c.Removing && (incomplete(c) == "" || incomplete(replaced) == "") {
			return ""
		}
	}
	for _, dir := range r.folders() {
		beside, _ := CheckpointsIn(dir) // a folder that is gone has none
		if slices.ContainsFunc(beside, func(c Checkpoint) bool { return c.Problem == "" && !known[c.Path] }) {
			return ""
		}
	}
	if len(known) == 0 {
		return ""
	}
	why := newest.Broken
	if why == "" {
		why = incomplete(newest)
	}
	return fmt.Sprintf("no checkpoint of this run is left whole (the newest one known, %s: %s), so the script would begin again at step 1", newest.Path, why)
}

// setAside is the beginning of the name that an incomplete checkpoint gets.
const setAside = "incomplete-"

// checkCheckpoints looks at the checkpoints that the script will see, newest first, up to
// the first whole one. One that is not whole would end every attempt at its resume, so
// it is renamed; nothing is deleted.
func (s *session) checkCheckpoints() {
	s.announced = ""
	for _, dir := range s.restarts.folders() {
		s.tidy(dir)
	}
	for c := s.restarts.newest(); c != nil; c = s.restarts.newest() {
		why := incomplete(*c)
		if why == "" {
			s.screen.say("the newest whole checkpoint is %s (step %d)", c.Path, c.Step)
			s.announced = c.Path
			return
		}
		c.Broken = why
		s.setAside(c.Path, why)
	}
}

// setAside renames a checkpoint that is not whole, so that no script finds it.
func (s *session) setAside(path, why string) {
	aside := filepath.Join(filepath.Dir(path), setAside+filepath.Base(path))
	switch err := os.Rename(path, aside); {
	case err == nil:
		s.screen.say("checkpoint %s is incomplete (%s): skipped, and kept as %s", path, why, filepath.Base(aside))
	case os.IsNotExist(err):
		s.screen.say("checkpoint %s is not there any more", path)
	default:
		s.screen.say("checkpoint %s is incomplete (%s) and cannot be set aside: %v", path, why, err)
	}
}

// folders are where the run's checkpoints lie.
func (r *restarts) folders() []string {
	var all []string
	for _, c := range r.Checkpoints {
		if dir := filepath.Dir(c.Path); !elsewhere(c.Path) && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return all
}

// tidy names what a save left that was cut off, and gives a checkpoint its name back that
// lost it between the two renames of a save.
func (s *session) tidy(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the checkpoints themselves will be missed
	}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), namedReplaced); ok {
			if _, err := os.Stat(filepath.Join(dir, name)); os.IsNotExist(err) {
				if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(dir, name)); err == nil {
					s.screen.say("checkpoint %s has its name back: the one that was to replace it was not finished", name)
				}
			}
		}
		if strings.HasPrefix(e.Name(), namedSaving) {
			s.screen.say("checkpoint %s is incomplete (it was being saved): skipped", e.Name())
		}
	}
}

// elsewhere says that a checkpoint lies in a storage that is not looked into, such as s3://.
func elsewhere(path string) bool { return strings.Contains(path, "://") }

// incomplete says what a checkpoint lacks of what was saved; empty if nothing. A
// checkpoint whose files are not known, such as one that was only loaded, is whole when
// it is there.
func incomplete(c savedCheckpoint) string {
	if elsewhere(c.Path) {
		return ""
	}
	if _, err := os.Stat(c.Path); err != nil {
		return "it cannot be found"
	}
	names := make([]string, 0, len(c.Files))
	for name := range c.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := os.Stat(filepath.Join(c.Path, name))
		switch {
		case err != nil:
			return name + " is missing"
		case info.Size() != c.Files[name]:
			return fmt.Sprintf("%s has %d of %d bytes", name, info.Size(), c.Files[name])
		}
	}
	return ""
}
