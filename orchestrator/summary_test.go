package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/hostwatch"
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
