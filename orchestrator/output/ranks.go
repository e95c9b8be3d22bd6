package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

// Options is what Open needs.
type Options struct {
	Dir     string // for the pipes; private to the run
	LogPath func(rank int) string
	Ranks   int
	// Stdout and Stderr get what rank 0 prints, byte for byte.
	Stdout, Stderr io.Writer
	// Limit is the size of a log file in bytes before it is set aside.
	Limit int64
}

// Ranks is the output of all ranks of an attempt.
type Ranks struct {
	logs    []*Log
	readers []*os.File
	writers []*os.File // keep the pipes open until Close
	pumps   sync.WaitGroup
	lines   chan line
	done    chan struct{}
	screens [2]io.Writer
}

// line is one line on its way to the only goroutine that writes.
type line struct {
	rank, stream int
	text         []byte
}

// streams are the names of a rank's two pipes, as the worker's entry knows them.
var streams = [2]string{"out", "err"}

// closeLimit is how long the last lines may take after the workers have ended.
const closeLimit = 5 * time.Second

// Open makes the pipes and starts to read them. Workers may open them from then on.
func Open(o Options) (*Ranks, error) {
	r := &Ranks{lines: make(chan line, 256), done: make(chan struct{}), screens: [2]io.Writer{o.Stdout, o.Stderr}}
	for rank := range o.Ranks {
		log, err := openLog(o.LogPath(rank), o.Limit)
		if err != nil {
			r.abandon()
			return nil, err
		}
		r.logs = append(r.logs, log)
		for _, stream := range streams {
			if err := r.openPipe(filepath.Join(o.Dir, fmt.Sprintf("rank-%d.%s", rank, stream))); err != nil {
				r.abandon()
				return nil, err
			}
		}
	}
	go r.write()
	for i, pipe := range r.readers {
		r.pumps.Add(1)
		go r.read(pipe, i/len(streams), i%len(streams))
	}
	return r, nil
}

// openPipe makes one named pipe. Its writing end is opened here too: without it the
// reader would see the end of the pipe before the worker comes.
func (r *Ranks) openPipe(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make output pipe %s: %w", path, err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open output pipe: %w", err)
	}
	r.readers = append(r.readers, reader)
	writer, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open output pipe: %w", err)
	}
	r.writers = append(r.writers, writer)
	return nil
}

func (r *Ranks) read(pipe *os.File, rank, stream int) {
	defer r.pumps.Done()
	_ = supervise.Pump(pipe, func(text []byte) {
		r.lines <- line{rank, stream, append([]byte(nil), text...)}
	})
}

// write is the only goroutine that writes, so lines never mix.
func (r *Ranks) write() {
	defer close(r.done)
	for l := range r.lines {
		r.logs[l.rank].write(l.text)
		if screen := r.screens[l.stream]; l.rank == 0 && screen != nil {
			_, _ = screen.Write(l.text) // a screen that is gone must not stop the run
		}
	}
}

// Close waits for the last lines of workers that have ended, and closes the logs.
// A worker that could not be ended does not hold it up.
func (r *Ranks) Close() {
	for _, w := range r.writers {
		_ = w.Close()
	}
	drained := make(chan struct{})
	go func() { defer close(drained); r.pumps.Wait() }()
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	}
	for _, f := range r.readers {
		_ = f.Close() // ends the pumps that still read
	}
	<-drained
	close(r.lines)
	<-r.done
	for _, log := range r.logs {
		log.close()
	}
}

// abandon closes what a failed Open has opened.
func (r *Ranks) abandon() {
	for _, f := range append(r.readers, r.writers...) {
		_ = f.Close()
	}
	for _, log := range r.logs {
		log.close()
	}
}

// Tail is the last lines of a rank, oldest first; call it after Close.
func (r *Ranks) Tail(rank int) []string {
	if rank < 0 || rank >= len(r.logs) {
		return nil
	}
	return r.logs[rank].tail.lines()
}
