package output

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
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
	// Cut, if it is not nil, hears why a log is not written, once for each log.
	Cut func(error)
}

// Ranks is the output of all ranks of an attempt.
type Ranks struct {
	logs    []*Log
	pipes   []*stream
	writers []int // descriptors that keep the pipes open until Close
	closing chan struct{}
	enough  chan struct{} // what has not come by now is given up
	blocks  chan block
	done    chan struct{}
	hangs   bool // a screen or a disk does not take what is written
	screens [2]io.Writer
	held    held
}

// block is what a rank has printed lately, on its way to the only goroutine that writes.
type block struct {
	rank int
	text []byte
	errs int // where in text standard error begins
}

// streams are the names of a rank's two pipes, as the worker's entry knows them.
var streams = [2]string{"out", "err"}

// queued is how many blocks may wait to be written: each has up to 64 KiB as a rule.
const queued = 64

const (
	// lookEvery is how often the pipes are looked at, and lookSoon how soon again for
	// floodFor after a look that found much: nobody who prints much is to be held up.
	lookEvery = 100 * time.Millisecond
	lookSoon  = 5 * time.Millisecond
	floodFor  = time.Second
	// closeLimit is how long the last lines may take after the workers have ended.
	closeLimit = 5 * time.Second
	// giveUpLimit is how long what was read may then take to be written.
	giveUpLimit = 2 * time.Second
)

// Open makes the pipes and starts to read them. Workers may open them from then on.
func Open(o Options) (*Ranks, error) {
	r := &Ranks{closing: make(chan struct{}), enough: make(chan struct{}), blocks: make(chan block, queued),
		done: make(chan struct{}), screens: [2]io.Writer{o.Stdout, o.Stderr}}
	for rank := range o.Ranks {
		log, err := openLog(o.LogPath(rank), o.Limit)
		if err != nil {
			r.abandon()
			return nil, err
		}
		log.cut = o.Cut
		r.logs = append(r.logs, log)
		for _, name := range streams {
			if err := r.openPipe(filepath.Join(o.Dir, fmt.Sprintf("rank-%d.%s", rank, name))); err != nil {
				r.abandon()
				return nil, err
			}
		}
	}
	go r.write()
	go r.read()
	return r, nil
}

// openPipe makes one named pipe. Its writing end is opened here too: without it the
// reader would see the end of the pipe before the worker comes.
func (r *Ranks) openPipe(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make output pipe %s: %w", path, err)
	}
	s, err := openStream(path)
	if err != nil {
		return fmt.Errorf("open output pipe: %w", err)
	}
	r.pipes = append(r.pipes, s)
	writer, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open output pipe: %w", err)
	}
	r.writers = append(r.writers, writer)
	return nil
}

// read looks at all pipes in turn until all have ended.
func (r *Ranks) read() {
	defer close(r.blocks)
	buffer := make([]byte, readSize)
	closing := r.closing
	timer := time.NewTimer(0)
	defer timer.Stop()
	var flood time.Time
	for {
		now := time.Now()
		busy, open := r.look(buffer, now)
		if !open {
			return
		}
		wait := lookEvery
		if busy {
			flood, wait = now, 0
		} else if now.Sub(flood) < floodFor || closing == nil {
			wait = lookSoon
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-closing:
			closing = nil
		case <-r.enough:
			return // an unfinished line of a worker that cannot be ended is given up
		}
	}
}

// look takes what all pipes hold now. busy says that there may be more, open that some
// pipe has not ended.
func (r *Ranks) look(buffer []byte, now time.Time) (busy, open bool) {
	for rank := range r.logs {
		b := block{rank: rank}
		for i, s := range r.pipes[rank*len(streams):][:len(streams)] {
			if i == 1 {
				b.errs = len(b.text)
			}
			if s.over {
				continue
			}
			more := s.take(buffer, now, func(text []byte) {
				b.text = append(slices.Grow(b.text, 2*len(text)), text...) // as much again for the other stream
			})
			busy, open = busy || more, open || !s.over
		}
		if len(b.text) > 0 {
			select {
			case r.blocks <- b:
			case <-r.enough:
				return false, false
			}
		}
	}
	return busy, open
}

// write is the only goroutine that writes, so lines never mix.
func (r *Ranks) write() {
	defer close(r.done)
	for b := range r.blocks {
		r.logs[b.rank].write(b.text)
		for i, text := range [...][]byte{b.text[:b.errs], b.text[b.errs:]} {
			if screen := r.screens[i]; b.rank == 0 && screen != nil && len(text) > 0 && !(i == 1 && r.held.take(text)) {
				_, _ = screen.Write(text) // a screen that is gone must not stop the run
			}
		}
	}
}

// Close waits for the last lines of workers that have ended, and closes the logs.
// Neither a worker that could not be ended holds it up for long, nor a screen or a disk
// that takes nothing any more: what is written there then stays open.
func (r *Ranks) Close() {
	r.closeWriters()
	close(r.closing)
	if !r.ended(closeLimit) {
		close(r.enough)
		if !r.ended(giveUpLimit) {
			r.hangs = true
			return
		}
	}
	r.closeAll()
}

func (r *Ranks) ended(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
		return false
	}
}

func (r *Ranks) closeWriters() {
	for _, fd := range r.writers {
		_ = unix.Close(fd)
	}
	r.writers = nil
}

func (r *Ranks) closeAll() {
	for _, s := range r.pipes {
		_ = unix.Close(s.fd)
	}
	for _, log := range r.logs {
		log.close()
	}
}

// abandon closes what a failed Open has opened.
func (r *Ranks) abandon() {
	r.closeWriters()
	r.closeAll()
}

// Tail is the last lines of a rank, oldest first; call it after Close.
func (r *Ranks) Tail(rank int) []string {
	if rank < 0 || rank >= len(r.logs) || r.hangs {
		return nil
	}
	return r.logs[rank].tail.lines()
}

// Missing is how many lines the logs lack, and why; call it after Close.
func (r *Ranks) Missing() (lines int64, why error) {
	if r.hangs {
		return 0, nil
	}
	for _, log := range r.logs {
		if log.lost > 0 {
			lines, why = lines+log.lost, log.why
		}
	}
	return lines, why
}
