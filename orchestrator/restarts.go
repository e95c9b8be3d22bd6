package orchestrator

import (
	"fmt"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// restartsVersion is the only version of restarts.json that is read.
const restartsVersion = 1

// restarts is restarts.json: what a run has been through. It lies in the run's folder,
// so that a budget is not filled by starting the supervisor again.
type restarts struct {
	Version int `json:"version"`
	// GlobalBatch never changes once it is known, whatever devices there are.
	GlobalBatch int `json:"global_batch,omitempty"`
	// BestStep is the furthest step that any attempt finished.
	BestStep int `json:"best_step"`
	// Spent is how many restarts were made since the last progress.
	Spent int `json:"spent"`
	// Attempts is how many launchers were started, those that measured included.
	Attempts int `json:"attempts"`
	// Total is how many restarts were made at all.
	Total    int           `json:"total"`
	Failures []pastFailure `json:"failures"`
	// Checkpoints are those that the script saved or loaded, oldest first.
	Checkpoints []savedCheckpoint `json:"checkpoints"`
	// SaveFailed says why the last save failed; empty when it did not. SaveCause is the
	// worker's word for it.
	SaveFailed string `json:"save_failed,omitempty"`
	SaveCause  string `json:"save_cause,omitempty"`
}

// pastFailure is one failure as it is kept.
type pastFailure struct {
	Time      time.Time `json:"time"`
	Cause     Cause     `json:"cause"`
	Reason    string    `json:"reason,omitempty"`
	Rank      int       `json:"rank"`
	Device    string    `json:"device,omitempty"`
	UUIDs     []string  `json:"uuids,omitempty"` // devices that were lost
	Step      int       `json:"step"`
	Exception string    `json:"exception,omitempty"`
	Message   string    `json:"message,omitempty"`
}

// savedCheckpoint is a checkpoint that the script saved or loaded.
type savedCheckpoint struct {
	Path  string           `json:"path"`
	Step  int              `json:"step"`
	Time  time.Time        `json:"time"`
	Files map[string]int64 `json:"files,omitempty"`
	// Broken says why it cannot be used; empty when it can.
	Broken string `json:"broken,omitempty"`
	// Placed says that it was written aside and given its name by us, so that it may be
	// rotated; Removing that this has begun.
	Placed   bool `json:"placed,omitempty"`
	Removing bool `json:"removing,omitempty"`
}

// verdict is what follows from a failure.
type verdict struct {
	again  bool
	gaveUp bool // the cause would have allowed it, the budget did not
	why    string
	pause  time.Duration
}

// policy is what the user allows.
type policy struct {
	max int // restarts without progress
	// resumable says that the script can be told, or knows, how to resume.
	resumable bool
	// nothingLeft says why nothing is left to go on from; empty if something is.
	nothingLeft string
}

// beginsAgain is why a script with nothing left to go on from is not started again.
func (p policy) beginsAgain(steps int) string {
	return fmt.Sprintf("%s and do %s again; put a checkpoint back in its place, or start the script anew", p.nothingLeft, show.Count(steps, "step"))
}

// judge decides on a restart and keeps the failure. reached is the last step that the
// attempt finished, and first the one that it began after.
func (r *restarts) judge(p policy, f pastFailure, first, reached int) verdict {
	previous := r.last()
	r.Failures = append(r.Failures, f)
	r.progress(reached)
	if why := final(f, previous, first, reached, r.BestStep > 0); why != "" {
		return verdict{why: why}
	}
	if r.BestStep > 0 && !p.resumable {
		return verdict{why: fmt.Sprintf("%s done and no checkpoint was saved, so the script would begin again at step 1; "+
			"let it save, or say with --resume-args how it resumes", areDone(r.BestStep))}
	}
	if r.BestStep > 0 && p.nothingLeft != "" {
		return verdict{why: p.beginsAgain(r.BestStep)}
	}
	if r.Spent >= p.max {
		return verdict{gaveUp: true, why: fmt.Sprintf("%s brought no progress", show.Count(r.Spent, "restart"))}
	}
	r.Spent++
	r.Total++
	return verdict{again: true, pause: backoff(r.Spent)}
}

// areDone is so many steps, with the verb.
func areDone(steps int) string {
	if steps == 1 {
		return "1 step is"
	}
	return fmt.Sprintf("%d steps are", steps)
}

// progress fills the budget again when a step is further than any before.
func (r *restarts) progress(step int) {
	if step > r.BestStep {
		r.BestStep, r.Spent = step, 0
	}
}

// final says why a failure is not worth another attempt; empty if it is. trained says
// that an attempt has done steps before: then workers can be started here.
func final(f pastFailure, previous *pastFailure, first, reached int, trained bool) string {
	beforeFirst := reached <= first
	switch f.Cause {
	case BadDevice, StartedOver, DiskFull, QuotaUsed, FileSize, ReadOnly:
		return "another attempt would end the same way"
	case NoLaunch:
		if !trained && f.Reason != reasonLauncherKilled {
			return "no attempt has done a step here, so another one may well end the same way"
		}
	case ScriptFault, EarlyExit, HostMemory:
		if beforeFirst {
			return "it failed before its first step"
		}
		if f.Cause != HostMemory && previous != nil && previous.same(f) {
			return fmt.Sprintf("it failed the same way twice after step %d", f.Step)
		}
	}
	return ""
}

// same says that two failures look alike at the same step.
func (f *pastFailure) same(o pastFailure) bool {
	return f.Cause == o.Cause && f.Step == o.Step && f.Exception == o.Exception && f.Message == o.Message
}

func (r *restarts) last() *pastFailure {
	if len(r.Failures) == 0 {
		return nil
	}
	return &r.Failures[len(r.Failures)-1]
}

// backoff is the pause before the nth restart without progress.
func backoff(n int) time.Duration {
	pauses := []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 15 * time.Second}
	if n > len(pauses) {
		return 30 * time.Second
	}
	return pauses[n-1]
}

// write keeps it.
func (r *restarts) write(run *rundir.Run) error {
	r.Version = restartsVersion
	return rundir.WriteJSON(run.Path(rundir.RestartsFile), r)
}

// readRestarts reads what an earlier supervisor of the run has left.
func readRestarts(run *rundir.Run) (*restarts, error) {
	r := &restarts{}
	if err := run.ReadJSON(rundir.RestartsFile, r); err != nil {
		return nil, err
	}
	if r.Version != restartsVersion {
		return nil, fmt.Errorf("%s has version %d, and only %d is known", run.Path(rundir.RestartsFile), r.Version, restartsVersion)
	}
	return r, nil
}
