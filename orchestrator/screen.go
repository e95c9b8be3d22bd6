package orchestrator

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// quietInterval is the time between two progress lines when nobody watches.
const quietInterval = 5 * time.Second

// screen is where our own words go. On a terminal the newest progress line stands at
// the bottom and is wiped before anything else is printed; otherwise there is a line
// every few seconds.
type screen struct {
	out   io.Writer
	width int
	now   func() time.Time

	mu   sync.Mutex
	live bool // a progress line stands there
	last time.Time
}

// wipe is what clears the line that the cursor is on.
const wipe = "\r\x1b[K"

// Write prints what the script prints.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	return s.out.Write(p)
}

// beside is a writer for the script's other stream: it wipes the progress line first.
func (s *screen) beside(other io.Writer) io.Writer { return besideWriter{s, other} }

type besideWriter struct {
	s     *screen
	other io.Writer
}

// Write wipes the progress line and passes on.
func (w besideWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.clear()
	return w.other.Write(p)
}

func (s *screen) clear() {
	if s.live {
		_, _ = io.WriteString(s.out, wipe)
		s.live = false
	}
}

// say prints a text of our own, ending in a newline.
func (s *screen) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, _ = s.Write([]byte(text))
}

// progress shows a step.
func (s *screen) progress(step show.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		_, _ = io.WriteString(s.out, wipe+show.Progress(step, s.width-1))
		s.live = true
		return
	}
	if now := s.now(); now.Sub(s.last) >= quietInterval {
		s.last = now
		_, _ = io.WriteString(s.out, show.Progress(step, 0)+"\n")
	}
}
