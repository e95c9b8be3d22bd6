package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator"
)

// listened are the signals that stop a run. Those of a scheduler ask as politely as
// the others.
var listened = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// listenForSignals ends the context at the first signal, with the signal as its cause,
// and closes force at the second one.
func listenForSignals(parent context.Context) (context.Context, <-chan struct{}, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	force := make(chan struct{})
	caught := make(chan os.Signal, 2)
	wanted := make([]os.Signal, 0, len(listened))
	for _, s := range listened {
		// Under nohup a hang-up is no reason to stop.
		if s != unix.SIGHUP || !signal.Ignored(s) {
			wanted = append(wanted, s)
		}
	}
	signal.Notify(caught, wanted...)
	// A reader of our output that goes away (`| head`) takes the screen with it, and not the
	// run: caught, the signal leaves an error of the write. Children do not inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	go func() {
		first := true
		for {
			select {
			case s := <-caught:
				if !first {
					close(force)
					return
				}
				first = false
				cancel(&orchestrator.StoppedError{Signal: s.(unix.Signal)})
			case <-parent.Done():
				return
			}
		}
	}()
	return ctx, force, func() { signal.Stop(caught); cancel(nil) }
}
