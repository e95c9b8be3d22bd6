package orchestrator

import (
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

// One rank fails within a save; all raise, and the one that failed is named with its cause
// in whatever order they come.
func TestUserCase31TheRankThatFailedWithinASave(t *testing.T) {
	const begin = "CheckpointException ranks:dict_keys([0])\nTraceback (most recent call last): (RANK 0)\n  File \"logger.py\", line 90, in wrapper\n    result = func()\n"
	cases := map[string]struct {
		said string
		want Cause
	}{
		"no memory":           {"MemoryError", DeviceMemory},
		"no memory of torch":  {"RuntimeError: DefaultCPUAllocator: can't allocate memory", DeviceMemory},
		"a full disk":         {"OSError: [Errno 28] No space left on device", DiskFull},
		"an error of its own": {"ValueError: unknown planner", ScriptFault},
	}
	for name, c := range cases {
		s := newStories(3)
		for _, rank := range []int{2, 0, 1} {
			s.add(events.Event{Kind: events.Error, Rank: rank, Exception: checkpointException, Message: begin + c.said + "\n"})
		}
		f := s.judge(supervise.Outcome{}, events.NoRank)
		if cause := causeOf(f, evidence{}); f.Rank != 0 || f.Message != c.said || cause != c.want {
			t.Errorf("%s: %s, %+v", name, cause, f)
		}
	}
}
