package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A stop that is asked for again, or a scheduler that warns twice, waits like the first; only
// somebody at the keyboard can end the wait for the script's checkpoint.
func TestOnlyTheKeyboardForcesAStop(t *testing.T) {
	caught, force, stopped := make(chan os.Signal), make(chan struct{}), make(chan unix.Signal, 9)
	go heed(t.Context(), caught, func(s unix.Signal) { stopped <- s }, force)
	// Each is taken only after the one before it was heeded.
	for _, s := range []unix.Signal{unix.SIGUSR1, unix.SIGTERM, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR2} {
		caught <- s
	}
	select {
	case <-force:
		t.Fatal("a second signal of a scheduler forces the stop")
	default:
	}
	caught <- unix.SIGINT
	<-force
	if s := <-stopped; s != unix.SIGUSR1 || len(stopped) != 0 {
		t.Errorf("stopped by %v and %d more, want the first alone", s, len(stopped))
	}
}
