package output

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// waiting is how many pieces of text may wait for a stream that is slow.
const waiting = 256

// Patient passes text on to streams that may not take it: a terminal that was stopped
// with Ctrl-S, a pipe that nobody reads. A writer waits for a slow reader, but not for one
// that takes nothing at all for as long as the patience lasts: text is dropped then, and
// counted, until the reader takes some again. Streams of one Patient keep their order.
type Patient struct {
	patience time.Duration
	notices  io.Writer
	pieces   chan piece
	done     chan struct{}
	stalled  atomic.Bool
	dropped  atomic.Int64
}

// piece is a text on its way; without a stream it is the end.
type piece struct {
	to   io.Writer
	text []byte
}

// NewPatient starts to pass text on. How much was dropped is said on notices.
func NewPatient(notices io.Writer, patience time.Duration) *Patient {
	p := &Patient{patience: patience, notices: notices, pieces: make(chan piece, waiting), done: make(chan struct{})}
	go p.pass()
	return p
}

// Writer is a stream whose Write waits for no longer than the patience.
func (p *Patient) Writer(to io.Writer) io.Writer { return patientWriter{p, to} }

// Close waits until everything is passed on, or for no longer than limit.
func (p *Patient) Close(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case p.pieces <- piece{}:
	case <-timer.C:
		return
	}
	select {
	case <-p.done:
	case <-timer.C:
	}
}

func (p *Patient) pass() {
	defer close(p.done)
	for next := range p.pieces {
		if next.to == nil {
			return
		}
		_, _ = next.to.Write(next.text) // a screen that is gone must not stop the run
		if p.stalled.Swap(false) {
			_, _ = fmt.Fprintf(p.notices, "\nnote: this screen took nothing for a while: %d bytes are not shown here; `cephalorun logs` has what the ranks printed\n", p.dropped.Swap(0))
		}
	}
}

type patientWriter struct {
	p  *Patient
	to io.Writer
}

// Write never fails: what cannot be shown is dropped.
func (w patientWriter) Write(text []byte) (int, error) {
	next := piece{w.to, append([]byte(nil), text...)}
	select {
	case w.p.pieces <- next:
		return len(text), nil
	default:
	}
	if !w.p.stalled.Load() {
		timer := time.NewTimer(w.p.patience)
		defer timer.Stop()
		select {
		case w.p.pieces <- next:
			return len(text), nil
		case <-timer.C:
			w.p.stalled.Store(true)
		}
	}
	w.p.dropped.Add(int64(len(text)))
	return len(text), nil
}
