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

// skipDamaged sets the checkpoint that could not be loaded aside, so that the script finds
// the one before it. It says why not if there is none: the script would begin again at step 1.
func (s *session) skipDamaged(why string) string {
	beside, err := CheckpointsIn(filepath.Dir(s.notLoaded))
	if err != nil || !slices.ContainsFunc(beside, func(c Checkpoint) bool { return c.Path != s.notLoaded && c.Problem == "" }) {
		return fmt.Sprintf("checkpoint %s is damaged (%s), and no other whole one lies beside it", s.notLoaded, why)
	}
	for i := range s.restarts.Checkpoints {
		if c := &s.restarts.Checkpoints[i]; c.Path == s.notLoaded {
			c.Broken = why
		}
	}
	s.setAside(s.notLoaded, why)
	return ""
}
