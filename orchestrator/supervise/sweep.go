package supervise

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes this process the parent of everything that loses its
// parent below it.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become sub-reaper: %w", err)
	}
	return nil
}

// killAll sends SIGKILL to each live process of the list.
func killAll(list []Process) {
	for _, p := range list {
		if !p.dead() {
			// One that may not be signalled stays in the list that the sweep
			// reports at its end.
			_ = p.Signal(unix.SIGKILL)
		}
	}
}

// sweep calls kill for what find lists, again and again, until it lists nothing alive
// or the limit is over. It returns what is left. reap is called after each round, for
// children that only wait to be collected.
func sweep(find func() ([]Process, error), kill, reap func([]Process), limit time.Duration) ([]Process, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	for {
		found, err := find()
		if err != nil {
			return nil, err
		}
		kill(found)
		reap(found)
		var left []Process
		for _, p := range found {
			if !p.dead() {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return nil, nil
		}
		select {
		case <-deadline.C:
			return stillThere(left), nil
		case <-tick.C:
		}
	}
}

// stillThere asks once more about each process, for its state of now.
func stillThere(list []Process) []Process {
	var left []Process
	for _, p := range list {
		now, err := ReadProcess(p.PID)
		if err == nil && now.StartTicks == p.StartTicks && !now.dead() {
			left = append(left, now)
		}
	}
	return left
}

// collect reaps one child if it has ended, without waiting.
func collect(pid int) {
	for {
		_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
