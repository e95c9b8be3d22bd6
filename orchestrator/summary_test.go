package orchestrator

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/hostwatch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

func TestStatusSaysWhatTheMachineSays(t *testing.T) {
	const memory, old = "host memory: 1.0 GiB of 2.0 GiB left (cgroup)\n", "(as it was at "
	said := func(running bool, age time.Duration) string {
		return Summary{Running: running, Machine: &hostwatch.State{Updated: time.Now().Add(-age),
			Memory: &hostwatch.Memory{TotalBytes: 2 << 30, FreeBytes: 1 << 30, Source: "cgroup"}}}.Text()
	}
	if got := said(true, 0); !strings.Contains(got, memory) || strings.Contains(got, old) {
		t.Errorf("now: %q", got)
	}
	if got := said(true, time.Hour); !strings.Contains(got, memory) || !strings.Contains(got, old) {
		t.Errorf("an hour ago: %q", got)
	}
	if got := said(false, 0); strings.Contains(got, memory) {
		t.Errorf("of a run that is over: %q", got)
	}
}

// newRun is a run's folder with these files in it.
func newRun(t *testing.T, files map[string]string) *rundir.Run {
	t.Helper()
	store, err := rundir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.New("train.py", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.Unlock()
	for name, text := range files {
		if err := os.WriteFile(r.Path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestADamagedStatusIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"null": "it holds null", " null\n": "it holds null", "{}": "it names no state", `{"state": "tr`: "unexpected end", "[]": "cannot unmarshal",
	} {
		s := Summarise(newRun(t, map[string]string{rundir.StatusFile: text}))
		if s.State != lost || !strings.Contains(s.Message, want) || !strings.Contains(s.Message, "status.json: it is damaged") {
			t.Errorf("%q: %+v", text, s)
		}
	}
}
