package orchestrator

import (
	"errors"
	"io/fs"
	"math"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/profiler"
)

// recall is what is known of a run's past: its restarts.json, and what its journal has beyond that.
// most is how many checkpoints are remembered.
func recall(run *rundir.Run, most int) (*restarts, error) {
	r, err := readRestarts(run)
	if errors.Is(err, fs.ErrNotExist) {
		r, err = &restarts{}, nil
	}
	if err != nil {
		return nil, usage("%w; remove it and try again: the global batch, the steps and the checkpoints are found in %s, and the budget of restarts begins anew",
			err, rundir.EventsFile)
	}
	if journal, err := profiler.ReadFile(run.Path(rundir.EventsFile), math.MaxInt64-1); err == nil {
		r.replay(journal, most)
	}
	return r, nil
}
