package cpu

import (
	"math"
	"path/filepath"
	"strings"
)

// Pressure is what the control group of this process says of its memory. Bytes are -1
// where the kernel does not say.
type Pressure struct {
	// OOMKills is how many of its processes the kernel has ended for want of memory; 0 when
	// it does not say, so that a plain kill is never taken for one.
	OOMKills int64
	// LimitBytes is the least limit of the group and its parents, PeakBytes the most that
	// the group has used.
	LimitBytes, PeakBytes int64
}

// ReadPressure reads it; root is "/" but for tests.
func ReadPressure(root string) Pressure {
	p := Pressure{LimitBytes: -1, PeakBytes: -1}
	if limit, _ := memoryLeft(root); limit < math.MaxInt64 {
		p.LimitBytes = limit
	}
	for _, g := range groups(root, "memory") {
		kills, peak := "memory.oom_control", "memory.max_usage_in_bytes"
		if g.v2 {
			kills, peak = "memory.events", "memory.peak"
		}
		own := g.folders()[0]
		if !exists(filepath.Join(own, kills)) {
			continue // this hierarchy does not count memory
		}
		p.OOMKills = statistic(filepath.Join(own, kills), "oom_kill")
		if n, ok := number(filepath.Join(own, peak)); ok {
			p.PeakBytes = n
		}
		return p
	}
	return p
}

func exists(file string) bool { return strings.TrimSpace(readText(file)) != "" }
