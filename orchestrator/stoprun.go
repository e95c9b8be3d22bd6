package orchestrator

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

// stopTick is the pause between two looks whether a run has ended.
const stopTick = 50 * time.Millisecond

// StopRun asks the owner of a run to stop and waits until it has, or until the context
// ends. The owner is told apart from a later process of its pid by its start time.
func StopRun(ctx context.Context, run *rundir.Run, signal unix.Signal) error {
	owner, err := run.Owner()
	if err != nil {
		return usage("stop run: %w", err)
	}
	if owner.PID <= 0 {
		return usage("stop run: %s names no owner: it is damaged", run.Path(rundir.OwnerFile))
	}
	if host, _ := os.Hostname(); owner.Host != host {
		return usage("run %s is on host %s, and this is %s", run.ID, owner.Host, host)
	}
	if !run.Running() || !supervise.Alive(owner.PID, owner.StartTicks) {
		return usage("run %s is not running", run.ID)
	}
	p, err := supervise.ReadProcess(owner.PID)
	if err != nil {
		return fmt.Errorf("stop run: %w", err)
	}
	p.StartTicks = owner.StartTicks
	if err := p.Signal(signal); err != nil {
		return fmt.Errorf("stop run: %w", err)
	}
	tick := time.NewTicker(stopTick)
	defer tick.Stop()
	for run.Running() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("run %s has been asked to stop and still runs; ask again with a longer --wait, or end its pid %d: nothing it started outlives it", run.ID, owner.PID)
		}
	}
	return nil
}
