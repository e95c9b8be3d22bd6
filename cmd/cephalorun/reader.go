package main

import (
	"errors"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator"
)

// A reader of standard output that goes away (`| head`) ends a command that only prints, quietly,
// like a program that SIGPIPE ends. A run goes on without its screen.

// errReaderGone is what was to be printed, and nobody reads.
var errReaderGone error = &orchestrator.StoppedError{Signal: unix.SIGPIPE}

// surviveReaders has a write to a reader that is gone fail, in place of a signal that ends us in
// the middle of anything. Programs that are started do not inherit it.
func surviveReaders() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// printed is standard output as commands write to it.
type printed struct{ to io.Writer }

// Write implements io.Writer. Its error is errReaderGone when the reader is gone.
func (p printed) Write(text []byte) (int, error) {
	n, err := p.to.Write(text)
	if errors.Is(err, unix.EPIPE) {
		err = errReaderGone
	}
	return n, err
}

// left is errReaderGone if the reader is gone, asked without writing; else nil.
func (p printed) left() error {
	file, ok := p.to.(*os.File)
	if !ok {
		return nil
	}
	state := []unix.PollFd{{Fd: int32(file.Fd())}}
	if n, err := unix.Poll(state, 0); err == nil && n == 1 && state[0].Revents&unix.POLLERR != 0 {
		return errReaderGone
	}
	return nil
}

// helped is standard output for what cobra prints, which does not pass errors on.
type helped struct {
	printed
	gone bool
}

// Write implements io.Writer. That the reader is gone is noted, and no error.
func (h *helped) Write(text []byte) (int, error) {
	n, err := h.printed.Write(text)
	if errors.Is(err, errReaderGone) {
		h.gone, err, n = true, nil, len(text)
	}
	return n, err
}
