package main

import (
	"context"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator"
)

// listened are the signals that stop a run. Those of a scheduler ask as politely as
// the others.
var listened = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// impatient are those that somebody at the keyboard sends: once more, they end the wait for
// the script's checkpoint. A second one of the others, as of a `stop` that is asked again or
// a scheduler that warns twice, must not cost that checkpoint.
var impatient = []os.Signal{unix.SIGINT, unix.SIGQUIT}

// listenForSignals ends the context at the first signal, with the signal as its cause,
// and closes force at a second one that is impatient.
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
	go heed(parent, caught, func(s unix.Signal) { cancel(&orchestrator.StoppedError{Signal: s}) }, force)
	return ctx, force, func() { signal.Stop(caught); cancel(nil) }
}

// heed calls stop with the first signal, and closes force at a later one that is impatient.
func heed(ctx context.Context, caught <-chan os.Signal, stop func(unix.Signal), force chan<- struct{}) {
	first := true
	for {
		select {
		case s := <-caught:
			switch {
			case first:
				first = false
				stop(s.(unix.Signal))
			case slices.Contains(impatient, s):
				close(force)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
