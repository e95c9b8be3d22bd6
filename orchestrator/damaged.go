package orchestrator

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// damage says what is wrong with the checkpoint that could not be loaded in the attempt
// that failed; empty if nothing is, so that the script is at fault. All of it is read, since a
// checkpoint whose files have the right sizes may be damaged inside.
func (s *session) damage(ctx context.Context) string {
	if s.notLoaded == "" {
		return ""
	}
	s.screen.say("checkpoint %s could not be loaded: reading all of it", s.notLoaded)
	tool := CheckpointTool{Python: s.python, Environ: s.deps.Environ, Dir: s.deps.Dir, Tell: func(text string) { s.screen.say("%s", text) }}
	var found CheckpointReport
	if err := tool.Verify(ctx, []string{s.notLoaded}, true, func(_ int, r CheckpointReport) { found = r }); err != nil {
		s.screen.say("note: the checkpoint could not be checked: %v", err)
		return ""
	}
	if len(found.Problems) == 0 {
		return ""
	}
	return firstLine(found.Problems[0])
}

// ofDamage is a failure for a checkpoint that could not be loaded and is damaged. The exception
// that it led to says less, and no rank is to blame.
func (s *session) ofDamage(f Failure, why string) Failure {
	f.Cause, f.Victims = BadCheckpoint, nil
	f.Message = fmt.Sprintf("checkpoint %s is damaged (%s)", s.notLoaded, why)
	return f
}

// skipDamaged sets the checkpoint that could not be loaded aside, so that the script finds
// the one before it. If there is none, that is added to the failure, with what there is to do: the
// script would begin again at step 1.
func (s *session) skipDamaged(f *Failure, why string) {
	beside, err := CheckpointsIn(filepath.Dir(s.notLoaded))
	if err != nil || !slices.ContainsFunc(beside, func(c Checkpoint) bool { return c.Path != s.notLoaded && c.Problem == "" }) {
		f.Message += ", and no other whole one lies beside it: put a whole copy of it there, or move it away to begin at step 1"
		f.NotRestarted = "without this checkpoint the script would begin again at step 1"
		return
	}
	for i := range s.restarts.Checkpoints {
		if c := &s.restarts.Checkpoints[i]; c.Path == s.notLoaded {
			c.Broken = why
		}
	}
	s.setAside(s.notLoaded, why)
}
