package supervise

import (
	"bytes"
	"io"
	"os"
	"time"
)

// LineFunc receives the output of a process. A line ends with its newline; a piece
// that waited for its newline for partialAfter comes without it, and the rest of
// the line follows in a later call. The slice is only valid during the call.
type LineFunc func(line []byte)

const (
	// partialAfter is how long an unfinished line (a prompt, a progress bar) is
	// held back before it is passed on as it is.
	partialAfter = time.Second
	readSize     = 64 << 10
)

// Pump reads a pipe to its end and hands on whole lines of any length. It needs a
// file with deadlines: a pipe, a named pipe or a socket.
func Pump(pipe *os.File, to LineFunc) error {
	p := pump{to: to}
	chunk := make([]byte, readSize)
	for {
		if len(p.rest) > 0 {
			_ = pipe.SetReadDeadline(p.since.Add(partialAfter))
		} else {
			_ = pipe.SetReadDeadline(time.Time{})
		}
		n, err := pipe.Read(chunk)
		p.add(chunk[:n])
		switch {
		case err == nil:
		case os.IsTimeout(err):
			p.flush()
		case err == io.EOF:
			p.flush()
			return nil
		default:
			p.flush()
			return err
		}
	}
}

// pump is the unfinished line of one stream.
type pump struct {
	to LineFunc

	rest  []byte
	since time.Time // when rest began to wait
}

// add passes on what is whole and keeps the remainder.
func (p *pump) add(data []byte) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			if len(p.rest) == 0 {
				p.since = time.Now()
			}
			p.rest = append(p.rest, data...)
			return
		}
		if len(p.rest) > 0 {
			p.rest = append(p.rest, data[:end]...)
			p.flush()
		} else {
			p.to(data[:end])
		}
		data = data[end:]
	}
}

// flush passes the remainder on.
func (p *pump) flush() {
	if len(p.rest) == 0 {
		return
	}
	p.to(p.rest)
	const keep = 1 << 20 // a buffer grown by one huge line is given back
	if cap(p.rest) > keep {
		p.rest = nil
	}
	p.rest = p.rest[:0]
}
