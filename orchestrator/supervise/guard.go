package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardSweepLimit bounds the guard's last act. A process that survives SIGKILL
// for so long sits in the kernel (state D) and is reported.
const guardSweepLimit = 8 * time.Second

// Guard is the whole life of the guard process; the program that embeds this
// package calls it when it was started as a guard. It returns when nothing is
// left below it, or when what is left cannot be killed.
func Guard() error {
	control := os.NewFile(controlFD, "control")
	if control == nil {
		return errors.New("guard: started without a control pipe; it is an internal process and not to be started by hand")
	}
	defer control.Close()
	unix.CloseOnExec(controlFD)
	if err := becomeSubreaper(); err != nil {
		return err
	}
	outliveSignals()

	orders := json.NewDecoder(control)
	var first order
	if err := orders.Decode(&first); err != nil || first.Start == nil {
		return fmt.Errorf("guard: no program to start: %w", err)
	}
	// The kernel ends the child when the *thread* that started it ends, so this
	// goroutine keeps its thread until the guard is over.
	runtime.LockOSThread()
	child, pidfd, err := startChild(*first.Start)
	if err != nil {
		return send(control, notice{Failed: err.Error()})
	}
	defer unix.Close(pidfd)
	// Without a supervisor nobody reads the notices: errors of send are then
	// expected, and the sweep below must happen all the same.
	_ = send(control, notice{Started: &child})
	ended, empty := reapAll(child.PID)
	guardTree(control, readOrders(orders), pidfd, ended)
	left, err := sweep(func() ([]Process, error) { return Descendants(os.Getpid()) }, killAll, func([]Process) {}, guardSweepLimit)
	if len(left) == 0 {
		waitFor(empty, time.Second)
	}
	_ = send(control, notice{Swept: &swept{Left: left}})
	return err
}

// outliveSignals keeps the guard alive through the signals that end the rest. They
// are caught and not ignored: an ignored signal would stay ignored in the child.
func outliveSignals() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE)
	go func() {
		for range caught {
			// Nothing to do: the supervisor decides.
		}
	}()
}

// startChild starts the program with the guard's own standard output and error.
// The descriptor names it beyond any reuse of its pid.
func startChild(p program) (Process, int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Process{}, 0, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(p.Path, p.Args, &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: []uintptr{null.Fd(), 1, 2},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return Process{}, 0, fmt.Errorf("start %s: %w", p.Path, err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return Process{}, 0, fmt.Errorf("watch %s: %w", p.Path, err)
	}
	child, err := ReadProcess(pid)
	if err != nil {
		return Process{}, 0, fmt.Errorf("watch %s: %w", p.Path, err)
	}
	return child, pidfd, nil
}

// reapAll collects every child, its own and inherited ones. ended yields the
// status of the first process; empty is closed when no child is left, which for a
// sub-reaper means that its whole tree is gone.
func reapAll(first int) (ended <-chan Status, empty <-chan struct{}) {
	status, none := make(chan Status, 1), make(chan struct{})
	go func() {
		defer close(none)
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, 0, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return
			}
			if pid == first {
				status <- statusOf(ws)
			}
		}
	}()
	return status, none
}

// readOrders passes the supervisor's orders on and closes the channel when the
// supervisor is gone.
func readOrders(decoder *json.Decoder) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var next order
			if err := decoder.Decode(&next); err != nil {
				return
			}
			orders <- next
		}
	}()
	return orders
}

// guardTree returns when the tree is to be swept: the first process has ended,
// the supervisor is gone, or it said so.
func guardTree(control io.Writer, orders <-chan order, pidfd int, ended <-chan Status) {
	for {
		select {
		case status := <-ended:
			_ = send(control, notice{Ended: &status})
			return
		case next, open := <-orders:
			if !open {
				return
			}
			if next.Signal != 0 {
				_ = unix.PidfdSendSignal(pidfd, unix.Signal(next.Signal), nil, 0)
			}
			if next.Sweep {
				_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
				select {
				case status := <-ended:
					_ = send(control, notice{Ended: &status})
				case <-time.After(time.Second): // in the kernel; the sweep names it
				}
				return
			}
		}
	}
}

// waitFor waits for a channel to close, but not longer than limit.
func waitFor(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
