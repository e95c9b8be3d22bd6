package orchestrator

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

func TestScreen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := func(n int) show.Step { return show.Step{Number: n, Ms: 10, SamplesPerSecond: 100} }
	t.Run("a pipe gets a line every few seconds", func(t *testing.T) {
		var out bytes.Buffer
		s := &screen{out: &out, now: func() time.Time { return now }}
		for i := range 100 {
			s.progress(step(i))
			now = now.Add(100 * time.Millisecond)
		}
		if n := strings.Count(out.String(), "\n"); n != 2 || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%d lines: %q", n, out.String())
		}
	})
	t.Run("a terminal has one line that other words wipe", func(t *testing.T) {
		var out, other bytes.Buffer
		s := &screen{out: &out, width: 80, now: time.Now}
		s.progress(step(1))
		s.progress(step(2))
		_, _ = s.beside(&other).Write([]byte("from the script\n"))
		s.say("done")
		if strings.Contains(out.String(), "step 2  100 samples/s  10.0 ms\n") || !strings.HasSuffix(out.String(), wipe+"done\n") || other.String() != "from the script\n" {
			t.Errorf("got %q and %q", out.String(), other.String())
		}
	})
}
