package orchestrator

import (
	"io"
	"os"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

// recentBytes is how much of a journal's end is read for the newest step: some hundred events.
const recentBytes = 256 << 10

// stepsSoFar is the last step that a run's files know of. status.json is written once a
// second, and a supervisor that is killed leaves it behind what the journal has.
func stepsSoFar(run *rundir.Run) int {
	var r restarts
	_ = run.ReadJSON(rundir.RestartsFile, &r) // without it the journal tells what it can
	journal, err := os.Open(run.Path(rundir.EventsFile))
	if err != nil {
		return r.BestStep
	}
	defer journal.Close()
	if info, err := journal.Stat(); err == nil && info.Size() > recentBytes {
		_, _ = journal.Seek(-recentBytes, io.SeekEnd)
	}
	if text, err := io.ReadAll(io.LimitReader(journal, 2*recentBytes)); err == nil {
		r.replay(text, keptCheckpoints)
	}
	return r.BestStep
}
