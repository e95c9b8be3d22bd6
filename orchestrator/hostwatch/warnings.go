package hostwatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

const (
	// lowPercent and lowDiskBytes are when memory or a disk counts as nearly used up.
	lowPercent   = 5
	lowDiskBytes = 1 << 30
	// quiet is for how long something must not have been so before it is told again.
	quiet = 10 * time.Minute
)

// warner tells what a person should know, once.
type warner struct {
	seen map[string]time.Time // when something was last so
	ecc  map[string]int
	oom  int64
	any  bool // there was a state before
}

// tell says what is new in a state.
func (w *warner) tell(s State) []string {
	var told []string
	once := func(key, format string, args ...any) {
		last, before := w.seen[key]
		w.seen[key] = s.Updated
		if !before || s.Updated.Sub(last) > quiet {
			told = append(told, fmt.Sprintf(format, args...))
		}
	}
	if m := s.Memory; m != nil {
		if m.FreeBytes*100 < m.TotalBytes*lowPercent {
			once("memory", "host memory is nearly used up: %s of %s left (%s)", show.Bytes(m.FreeBytes), show.Bytes(m.TotalBytes), m.Source)
		}
		if w.any && m.OOMKills > w.oom {
			told = append(told, fmt.Sprintf("the kernel has ended %d processes of this control group for want of host memory", m.OOMKills-w.oom))
		}
		w.oom, w.any = m.OOMKills, true
	}
	for _, d := range s.Disks {
		switch {
		case d.Stale:
			once("stale "+d.Path, "%s", d.line())
		case d.Problem == "" && d.FreeBytes < min(lowDiskBytes, d.TotalBytes*lowPercent/100):
			once("disk "+d.Path, "the disk of %s is nearly full: %s of %s left", d.Path, show.Bytes(d.FreeBytes), show.Bytes(d.TotalBytes))
		}
	}
	for _, g := range s.GPUs {
		name := fmt.Sprintf("GPU %d", g.Index)
		if g.Stale && s.Problem == "" {
			since := "it has not told any numbers"
			if !g.At.IsZero() {
				since = "its numbers are stale since " + clock(g.At)
			}
			once("stale "+name, "%s %s; %s", name, g.Problem, since)
			continue
		}
		if slices.Contains(g.Throttled, "heat") {
			once("heat "+name, "%s is held back by heat: %s °C, %s of %s MHz", name, known(g.TemperatureC), known(g.ClockMHz), known(g.MaxClockMHz))
		}
		if before, was := w.ecc[name]; was && g.ECCErrors > before {
			told = append(told, fmt.Sprintf("%s has had %d memory errors that could not be corrected", name, g.ECCErrors-before))
		}
		if g.ECCErrors >= 0 {
			w.ecc[name] = g.ECCErrors
		}
	}
	if s.Problem != "" {
		once("gpus", "the GPUs cannot be read, which is tried again; the training goes on: %s", s.Problem)
	}
	return told
}
