package orchestrator

import (
	"context"
	"sync/atomic"
	"time"
)

// lookEvery is how often devices that were lost are looked for.
const lookEvery = 10 * time.Second

// comeback notices that a device that was lost is there again. It is used from the next
// checkpoint on, so that no work is lost by it.
type comeback struct {
	seen  atomic.Bool // by the goroutine that looks
	saved bool        // a checkpoint was saved since
	end   context.CancelFunc
}

// lookForDevices starts to look for devices that this attempt does without.
func (s *session) lookForDevices(ctx context.Context) *comeback {
	ctx, end := context.WithCancel(ctx)
	c := &comeback{end: end}
	if len(s.devices.Chosen) == len(s.all) {
		return c
	}
	every := lookEvery
	if s.deps.LookEvery > 0 {
		every = s.deps.LookEvery
	}
	chosen := s.devices.Chosen
	present := s.presence()
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for !c.seen.Load() {
			select {
			case <-tick.C:
				c.seen.Store(len(present(ctx)) > len(chosen))
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// enough says that the attempt is to stop for a better plan.
func (c *comeback) enough() bool { return c.saved && c.seen.Load() }
