package orchestrator

import (
	"os"
	"slices"
	"strings"
)

// sayLoaded says, once in an attempt, when the script goes on from something else than the
// checkpoint that was announced. It may load several, such as a model to begin with.
func (s *session) sayLoaded() {
	announced := s.announced
	s.announced = ""
	if announced == "" || slices.ContainsFunc(s.loaded, func(path string) bool { return samePlace(path, announced) }) {
		return
	}
	if len(s.loaded) == 0 {
		s.screen.say("note: the script was not seen to load %s, or any other distributed checkpoint", announced)
		return
	}
	s.screen.say("note: the script has loaded %s, and not %s, which is the newest whole checkpoint known", strings.Join(s.loaded, ", "), announced)
}

// samePlace says that two paths name one checkpoint; a link may name it too.
func samePlace(a, b string) bool {
	if a == b {
		return true
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
