package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/hostwatch"
	"github.com/cephalorun/cephalorun/profiler"
)

const (
	// clocksEvery is how often GPUs are looked at while they are measured.
	clocksEvery = 2 * time.Second
	// busyPercent is from when on a GPU's clock is that of its work.
	busyPercent = 50
)

// clocks are how fast GPUs ran while they were measured, by UUID.
type clocks struct {
	mu   sync.Mutex
	seen map[string]profiler.Reading
}

// watchClocks looks at the GPUs of the run until the function that it returns is called.
func (s *session) watchClocks(ctx context.Context) (*clocks, func()) {
	c := &clocks{seen: map[string]profiler.Reading{}}
	w := s.watchOf(s.devices.Chosen, func(state hostwatch.State, _ []string) { c.note(state.GPUs) })
	if w.GPUs == nil {
		return c, func() {}
	}
	w.Every = clocksEvery
	if s.deps.ReadEvery > 0 {
		w.Every = min(w.Every, s.deps.ReadEvery)
	}
	w.Start(ctx)
	return c, w.Close
}

// note keeps the lowest clock at work, and all that held a GPU back.
func (c *clocks) note(gpus []profiler.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range gpus {
		if g.Stale || g.BusyPercent != profiler.Unknown && g.BusyPercent < busyPercent {
			continue
		}
		before, known := c.seen[g.UUID]
		if known && before.ClockMHz >= 0 && (g.ClockMHz < 0 || before.ClockMHz < g.ClockMHz) {
			g.ClockMHz = before.ClockMHz
		}
		for _, why := range before.Throttled {
			if !slices.Contains(g.Throttled, why) {
				g.Throttled = append(g.Throttled, why)
			}
		}
		slices.Sort(g.Throttled)
		c.seen[g.UUID] = g
	}
}

// into puts what was seen into the profile.
func (c *clocks) into(p *profiler.Profile, devices []profiler.Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range p.Devices {
		if g, known := c.seen[devices[i].GPUUUID]; known {
			d := &p.Devices[i]
			d.ClockMHz, d.MaxClockMHz, d.Throttled = max(0, g.ClockMHz), max(0, g.MaxClockMHz), g.Throttled
		}
	}
}

// sayHeldBack names the devices whose times are those of a GPU that was held back. A limit on
// power is how many run all the time, and no news.
func (s *session) sayHeldBack() {
	for i, d := range s.profile.Devices {
		why := slices.DeleteFunc(slices.Clone(d.Throttled), func(w string) bool { return w == "power" })
		if len(why) == 0 {
			continue
		}
		s.screen.say("note: %s was held back by %s while it was measured%s: the plan is for that; measure again with --remeasure when it is not",
			s.devices.Chosen[i].Label(), strings.Join(why, " and "), atClock(d))
	}
}

func atClock(d profiler.ProfileDevice) string {
	if d.ClockMHz == 0 || d.MaxClockMHz == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d MHz)", d.ClockMHz, d.MaxClockMHz)
}
