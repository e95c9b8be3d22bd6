package orchestrator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// removalLimit is how long the end of a run waits for a removal that is under way; what is
// left then is removed by the next one.
const removalLimit = 30 * time.Second

// removed is what became of one checkpoint that was to go.
type removed struct {
	path string
	// kept says that files which are not ours lie in its folder, which stays for them.
	kept bool
	err  error
}

// rotate removes the oldest checkpoints beside the training, one batch at a time.
func (s *session) rotate() {
	s.collectRemoved(0)
	if s.spec.KeepCheckpoints <= 0 || s.removing != nil {
		return
	}
	surplus := s.restarts.surplus(s.spec.KeepCheckpoints)
	if len(surplus) == 0 {
		return
	}
	// It is noted before, so that nobody counts on what is half gone.
	if err := s.restarts.write(s.run); err != nil {
		s.unkept.say(s.screen, err)
		return
	}
	done := make(chan []removed, 1)
	s.removing = done
	go func() {
		var all []removed
		for _, c := range surplus {
			kept, err := c.remove()
			all = append(all, removed{c.Path, kept, err})
		}
		done <- all
	}()
}

// collectRemoved notes what a removal did, if it ends within the limit.
func (s *session) collectRemoved(limit time.Duration) {
	if s.removing == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var all []removed
	select {
	case all = <-s.removing:
	default:
		select {
		case all = <-s.removing:
		case <-timer.C:
			return
		}
	}
	s.removing = nil
	for _, one := range all {
		if one.err != nil {
			s.screen.say("note: checkpoint %s could not be removed: %v", one.path, one.err)
			continue // it is tried again
		}
		if one.kept {
			s.screen.say("note: the folder of checkpoint %s stays: it holds files that were not saved with it", one.path)
		}
		s.restarts.Checkpoints = slices.DeleteFunc(s.restarts.Checkpoints, func(c savedCheckpoint) bool { return c.Path == one.path && c.Removing })
		s.note(events.Event{Kind: events.Checkpoint, Phase: checkpointRemoved, Path: one.path})
	}
	s.unkept.say(s.screen, s.restarts.write(s.run))
}

// surplus marks and returns those that go when so many are kept. Only complete ones count,
// and only those that we gave their place are removed; the newest complete one never is.
func (r *restarts) surplus(keep int) []savedCheckpoint {
	var gone []savedCheckpoint
	complete := 0
	for i := len(r.Checkpoints) - 1; i >= 0; i-- {
		c := &r.Checkpoints[i]
		switch {
		case c.Removing: // by a supervisor that ended meanwhile
			gone = append(gone, *c)
		case !c.Placed || c.Broken != "" || incomplete(*c) != "":
		case complete < keep:
			complete++
		default:
			c.Removing = true
			gone = append(gone, *c)
		}
	}
	slices.Reverse(gone) // the oldest first
	return gone
}

// remove deletes the files that were saved, and the folder if nothing else lies in it. The
// file without which nobody takes it for a checkpoint goes first.
func (c savedCheckpoint) remove() (kept bool, err error) {
	info, err := os.Lstat(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return true, nil // a link that somebody has put there
	}
	names := []string{metadataFile}
	folders := map[string]bool{c.Path: true}
	for name := range c.Files {
		if !filepath.IsLocal(name) {
			continue
		}
		names = append(names, name)
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			folders[filepath.Join(c.Path, dir)] = true
		}
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(c.Path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	var inner []string
	for dir := range folders {
		inner = append(inner, dir)
	}
	slices.SortFunc(inner, func(a, b string) int { return len(b) - len(a) }) // the innermost first
	for _, dir := range inner {
		switch err := os.Remove(dir); {
		case err == nil || errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist):
			kept = true
		default:
			return kept, err
		}
	}
	return kept, nil
}
