package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is a program to run under a guard. Path is absolute; Args[0] is the
// program's name, as in exec.
type Command struct {
	Path           string
	Args           []string
	Env            []string
	Dir            string
	Stdout, Stderr LineFunc
}

// Outcome is how a tree ended.
type Outcome struct {
	Status
	// Unasked says that the first process ended before the supervisor asked it to.
	Unasked bool
	// GuardLost says that the guard itself was killed, and the first process with it before
	// anybody saw how that ended; Status is then a guess.
	GuardLost bool
	// Left are processes that could not be killed.
	Left []Process
}

// Tree is one guarded program with everything that it starts.
type Tree struct {
	// Dependencies, never modified.
	owner   *Supervisor
	guard   *exec.Cmd
	first   Process
	control *os.File
	pumps   sync.WaitGroup
	pipes   []*os.File

	// State.
	asked atomic.Bool // to end: by a signal or a sweep
	done  chan struct{}

	// State: written before done is closed, read after it.
	outcome Outcome

	// State, under mu.
	mu sync.Mutex // one writer on control
}

const (
	// startLimit is how long a guard may take to start its program.
	startLimit = 20 * time.Second
	// drainLimit is how long output may still come when the tree is gone: only
	// from a process that could not be killed.
	drainLimit = 2 * time.Second
	// killLimit is how long a guard may take to kill everything.
	killLimit = guardSweepLimit + 3*time.Second
)

// Start runs a command. The context only aborts the start; it does not stop the
// tree later on.
func (s *Supervisor) Start(ctx context.Context, c Command) (*Tree, error) {
	t := &Tree{owner: s, done: make(chan struct{})}
	theirs, err := t.prepare(c)
	defer closeAll(theirs)
	if err != nil {
		t.release()
		return nil, err
	}
	if err := t.guard.Start(); err != nil {
		t.release()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	s.addGuard(t.guard.Process.Pid)
	closeAll(theirs)
	notices := t.readNotices()
	if err := t.launch(ctx, c, notices); err != nil {
		t.abandon()
		return nil, err
	}
	t.pumps.Add(2)
	go t.pump(t.pipes[0], c.Stdout)
	go t.pump(t.pipes[1], c.Stderr)
	go t.watch(notices)
	return t, nil
}

// prepare makes the pipes and the guard's command. It returns the ends that
// belong to the guard.
func (t *Tree) prepare(c Command) (theirs []*os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make control pipe: %w", err)
	}
	t.control = os.NewFile(uintptr(pair[0]), "control")
	theirs = append(theirs, os.NewFile(uintptr(pair[1]), "control of the guard"))
	var writers []*os.File
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, fmt.Errorf("make output pipe: %w", err)
		}
		t.pipes = append(t.pipes, r)
		theirs = append(theirs, w)
		writers = append(writers, w)
	}
	o := t.owner.options
	t.guard = &exec.Cmd{
		Path: o.GuardPath, Args: o.GuardArgs, Env: o.GuardEnv, Dir: "/",
		Stdout: writers[0], Stderr: writers[1], ExtraFiles: theirs[:1],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	return theirs, nil
}

// launch tells the guard what to run and waits until it runs.
func (t *Tree) launch(ctx context.Context, c Command, notices <-chan notice) error {
	p := program{Path: c.Path, Args: c.Args, Env: append(c.Env[:len(c.Env):len(c.Env)], Mark+"=1"), Dir: c.Dir}
	if err := t.send(order{Start: &p}); err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	timer := time.NewTimer(startLimit)
	defer timer.Stop()
	select {
	case n, open := <-notices:
		switch {
		case n.Started != nil:
			t.first = *n.Started
			return nil
		case n.Failed != "":
			return errors.New(n.Failed)
		case !open:
			return errors.New("start guard: it ended before it started anything")
		default:
			return errors.New("start guard: unexpected answer")
		}
	case <-timer.C:
		return fmt.Errorf("start guard: no answer within %s", startLimit)
	case <-ctx.Done():
		return fmt.Errorf("start %s: %w", c.Path, context.Cause(ctx))
	}
}

// readNotices passes the guard's lines on and closes the channel when the guard
// is gone.
func (t *Tree) readNotices() <-chan notice {
	notices := make(chan notice, 4) // a guard sends at most three
	decoder := json.NewDecoder(t.control)
	go func() {
		defer close(notices)
		for {
			var n notice
			if err := decoder.Decode(&n); err != nil {
				return
			}
			notices <- n
		}
	}()
	return notices
}

// watch follows the guard to its end and makes sure that nothing is left.
func (t *Tree) watch(notices <-chan notice) {
	defer close(t.done)
	var end *Status
	var sweptBy *swept
	for n := range notices {
		if n.Ended != nil {
			end = n.Ended
			t.outcome.Unasked = !t.asked.Load()
		}
		if n.Swept != nil {
			sweptBy = n.Swept
		}
	}
	t.reapGuard()
	if end != nil {
		t.outcome.Status = *end
	} else {
		t.outcome.Status, t.outcome.Unasked = Status{Signal: int(unix.SIGKILL)}, !t.asked.Load()
	}
	if sweptBy != nil {
		t.outcome.Left = sweptBy.Left
	} else {
		t.outcome.GuardLost = end == nil
		t.outcome.Left = t.owner.sweepOrphans()
	}
	t.drain()
	t.release()
}

// reapGuard waits for the guard, whose control pipe has ended.
func (t *Tree) reapGuard() {
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_ = t.guard.Wait() // its status says nothing that the notices do not
	}()
	if !waitFor(waited, time.Second) {
		_ = t.guard.Process.Kill()
		waitFor(waited, time.Second)
	}
	t.owner.dropGuard(t.guard.Process.Pid)
}

// abandon ends a guard whose start failed.
func (t *Tree) abandon() {
	_ = t.control.Close() // the guard sweeps and goes
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_ = t.guard.Wait()
	}()
	if !waitFor(waited, killLimit) {
		_ = t.guard.Process.Kill()
		waitFor(waited, time.Second)
	}
	t.owner.dropGuard(t.guard.Process.Pid)
	t.release()
}

func (t *Tree) pump(pipe *os.File, to LineFunc) {
	defer t.pumps.Done()
	if to == nil {
		to = func([]byte) {}
	}
	if err := Pump(pipe, to); err != nil && !os.IsTimeout(err) && !errors.Is(err, os.ErrClosed) {
		t.owner.options.Logger.Error("not all that torchrun printed could be read", "error", err)
	}
}

// drain waits for the last lines. Every writer is gone, save one that cannot be
// killed, so this is quick or cut off.
func (t *Tree) drain() {
	drained := make(chan struct{})
	go func() { defer close(drained); t.pumps.Wait() }()
	waitFor(drained, drainLimit)
}

func (t *Tree) release() {
	if t.control != nil {
		_ = t.control.Close()
	}
	closeAll(t.pipes)
}

func (t *Tree) send(o order) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.control.SetWriteDeadline(time.Now().Add(time.Second))
	return send(t.control, o)
}

// closeAll closes each file; closing twice does no harm.
func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
