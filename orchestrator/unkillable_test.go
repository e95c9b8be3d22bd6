package orchestrator

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
	"github.com/cephalorun/cephalorun/profiler"
)

// User case 28: a worker that cannot be killed is named with its device, which is left
// out of the next plan; nothing of that happens for the only device.
func TestUserCase28TheDeviceOfAWorkerThatCannotBeKilled(t *testing.T) {
	cases := map[string]struct {
		devices int
		left    []int // pids
		lost    []int
		want    []int
		says    string
	}{
		"nothing is left":       {2, nil, nil, nil, ""},
		"a worker":              {2, []int{101}, nil, []int{1}, "worker pid 101 (python, state D) of rank 1 cannot be killed, most likely because of GPU 0 card; leaving it. The host may need a reboot"},
		"a helper":              {2, []int{7}, nil, nil, "pid 7 (python, state D) cannot be killed"},
		"known to be lost":      {2, []int{101}, []int{1}, []int{1}, "of rank 1"},
		"two of three":          {3, []int{101, 102}, nil, []int{1, 2}, "of rank 2"},
		"one device is kept":    {2, []int{100, 101}, nil, []int{0}, "of rank 1"},
		"the only device stays": {1, []int{100}, nil, nil, "of rank 0"},
	}
	for name, c := range cases {
		var said bytes.Buffer
		s := &session{screen: &screen{out: &said, now: time.Now}}
		end := ended{stories: newStories(c.devices)}
		for rank := range c.devices {
			s.devices.Chosen = append(s.devices.Chosen, profiler.Device{UUID: string(rune('a' + rank)), Name: "card", Kind: profiler.KindCUDA})
			end.stories.add(events.Event{Kind: events.Start, Rank: rank, PID: 100 + rank})
		}
		for _, pid := range c.left {
			end.outcome.Left = append(end.outcome.Left, supervise.Process{PID: pid, Name: "python", State: "D"})
		}
		lost := s.without(s.sayLeft(end), c.lost)
		if !slices.Equal(lost, c.want) || !strings.Contains(said.String(), c.says) {
			t.Errorf("%s: lost %v, want %v; said %q", name, lost, c.want, said.String())
		}
		if banned := len(c.want) - len(c.lost); len(s.banned) != banned {
			t.Errorf("%s: left out for good: %v", name, s.banned)
		}
	}
}
