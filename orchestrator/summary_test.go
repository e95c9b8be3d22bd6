package orchestrator

import (
	"fmt"
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

// A supervisor that is killed leaves status.json behind the journal.
func TestStepsOfALostRun(t *testing.T) {
	var journal strings.Builder
	for n := range 23 {
		for rank := range 2 {
			fmt.Fprintf(&journal, `{"kind": "step", "rank": %d, "step": %d}`+"\n", rank, n+1)
		}
	}
	long := strings.Repeat(`{"kind": "state", "rank": -1, "message": "`+strings.Repeat("x", 1000)+`"}`+"\n", 300) + journal.String()
	for name, files := range map[string]map[string]string{
		"no step in the status": {rundir.StatusFile: `{"state": "training"}`, rundir.EventsFile: journal.String()},
		"an older one":          {rundir.StatusFile: `{"state": "training", "last_step": {"step": 20}}`, rundir.EventsFile: long},
		"cut off":               {rundir.EventsFile: journal.String() + `{"kind": "step", "ra`},
		"only a budget":         {rundir.RestartsFile: `{"version": 1, "best_step": 23}`},
	} {
		s := Summarise(newRun(t, files))
		if s.State != lost || s.Steps != 23 || !strings.Contains(s.Text(), "steps: 23\n") || !strings.Contains(SummaryTable([]Summary{s}), "23") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
