package orchestrator

import (
	"fmt"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler/cpu"
)

// pressure is what our control group says of its memory.
func (s *session) pressure() cpu.Pressure {
	if s.deps.Pressure != nil {
		return s.deps.Pressure()
	}
	return cpu.ReadPressure("/")
}

// hostMemoryMessage says what ended a worker, with the numbers that the kernel gives.
func hostMemoryMessage(p cpu.Pressure) string {
	text := "the kernel ended it for want of host memory"
	if p.LimitBytes >= 0 {
		text += fmt.Sprintf(" (the control group's limit is %s, the most it used %s)", show.Bytes(p.LimitBytes), show.Bytes(p.PeakBytes))
	}
	return text + "; if every rank loads all weights, let one of them load"
}
