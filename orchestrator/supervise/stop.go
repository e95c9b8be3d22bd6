package supervise

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// First is the program that was started: the launcher.
func (t *Tree) First() Process { return t.first }

// Guard is the pid of the guard.
func (t *Tree) Guard() int { return t.guard.Process.Pid }

// Done is closed when the tree is gone and all of its output has been handed on.
func (t *Tree) Done() <-chan struct{} { return t.done }

// Outcome says how the tree ended; it waits for that.
func (t *Tree) Outcome() Outcome {
	<-t.done
	return t.outcome
}

// Processes lists what runs below the guard.
func (t *Tree) Processes() ([]Process, error) { return Descendants(t.Guard()) }

// Signal sends a signal to the first process only: the launcher of a training job
// passes SIGTERM on to its workers itself. A tree that is gone is no error.
func (t *Tree) Signal(signal unix.Signal) {
	t.asked.Store(true)
	_ = t.send(order{Signal: int(signal)})
}

// Stop ends the tree: SIGTERM to the first process, and SIGKILL to everything that
// is left after the grace or when the context ends. It returns when nothing is
// left or what is left cannot be killed, after grace + 15 s at the latest.
func (t *Tree) Stop(ctx context.Context, grace time.Duration) Outcome {
	t.Signal(unix.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-t.done:
		return t.outcome
	case <-timer.C:
	case <-ctx.Done():
	}
	return t.Kill()
}

// Kill ends the tree at once.
func (t *Tree) Kill() Outcome {
	t.asked.Store(true)
	_ = t.send(order{Sweep: true})
	if !waitFor(t.done, killLimit) {
		// The guard does not answer (stopped, say): without it everything falls to
		// this process, which then sweeps.
		_ = t.guard.Process.Kill()
		if !waitFor(t.done, orphanSweepLimit+drainLimit+3*time.Second) {
			left, _ := Descendants(t.Guard())
			return Outcome{Status: Status{Signal: int(unix.SIGKILL)}, GuardLost: true, Left: left}
		}
	}
	return t.outcome
}
