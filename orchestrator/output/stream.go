package output

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// partialAfter is how long an unfinished line (a prompt, a progress bar) is held back
	// before it is passed on as it is.
	partialAfter = time.Second - lookEvery
	readSize     = 64 << 10
	// pipeSize is what a pipe should hold between two looks, where the kernel allows it.
	pipeSize = 256 << 10
)

// stream is the reading end of one named pipe. It is a bare descriptor that nothing waits
// on: a worker that prints line by line would otherwise wake us for every line, which
// costs many times what is done with it.
type stream struct {
	fd   int
	over bool // every writer is gone

	rest  []byte    // an unfinished line
	since time.Time // when it began to wait
}

func openStream(path string) (*stream, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize)
	return &stream{fd: fd}, nil
}

// take reads what is there, once, and hands on whole lines. It says whether there may be
// more.
func (s *stream) take(buffer []byte, now time.Time, to func([]byte)) bool {
	n, err := unix.Read(s.fd, buffer)
	switch {
	case errors.Is(err, unix.EINTR):
		return true
	case n > 0:
		s.add(buffer[:n], now, to)
		return n == len(buffer)
	case !errors.Is(err, unix.EAGAIN): // the end, or a pipe that cannot be read any more
		s.over = true
	}
	if s.over || len(s.rest) > 0 && now.Sub(s.since) >= partialAfter {
		s.flush(to)
	}
	return false
}

// add passes on what is whole and keeps the remainder.
func (s *stream) add(data []byte, now time.Time, to func([]byte)) {
	if end := bytes.IndexByte(data, '\n') + 1; end > 0 && len(s.rest) > 0 {
		s.rest = append(s.rest, data[:end]...)
		s.flush(to)
		data = data[end:]
	}
	if end := bytes.LastIndexByte(data, '\n') + 1; end > 0 {
		to(data[:end])
		data = data[end:]
	}
	if len(data) == 0 {
		return
	}
	if len(s.rest) == 0 {
		s.since = now
	}
	s.rest = append(s.rest, data...)
}

// flush passes the remainder on.
func (s *stream) flush(to func([]byte)) {
	if len(s.rest) > 0 {
		to(s.rest)
	}
	const keep = 1 << 20 // a buffer grown by one huge line is given back
	if cap(s.rest) > keep {
		s.rest = nil
	}
	s.rest = s.rest[:0]
}
