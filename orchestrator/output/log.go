package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// DefaultLimit is the size of a log file before it is set aside, and generations is
// how many are kept besides the first, which is always kept: how a run began is what
// explains it.
const (
	DefaultLimit = 64 << 20
	generations  = 4
)

// Log is the log file of one rank. PATH is the current one, PATH.first the oldest,
// PATH.1 to PATH.4 the ones before the current, newest first.
type Log struct {
	path  string
	limit int64

	file    *os.File
	size    int64
	rotated int
	dropped int64 // lines that the disk did not take, since it last took one
	lost    int64 // those of all the time
	why     error // of the first of them
	cut     func(error)
	tail    tail
}

func openLog(path string, limit int64) (*Log, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	l := &Log{path: path, limit: limit}
	if err := l.reopen(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return l, nil
}

func (l *Log) reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	l.file, l.size = f, info.Size()
	return nil
}

// write appends lines. What the disk does not take is counted and said once there is
// room again (user case 76).
func (l *Log) write(text []byte) {
	l.tail.add(text)
	if l.size > 0 && l.size+int64(len(text)) > l.limit {
		l.rotate()
	}
	if l.file == nil {
		if err := l.reopen(); err != nil {
			l.drop(text, err)
			return
		}
	}
	if l.dropped > 0 {
		if err := l.note(); err != nil {
			l.drop(text, err)
			return
		}
	}
	n, err := l.file.Write(text)
	l.size += int64(n)
	if err != nil {
		l.drop(text[n:], err)
	}
}

// note says in the log itself what it lacks.
func (l *Log) note() error {
	n, err := fmt.Fprintf(l.file, "\n[lines missing here: %d; %v]\n", l.dropped, reason(l.why))
	l.size += int64(n)
	if err == nil {
		l.dropped = 0
	}
	return err
}

// drop counts lines that were not written, one that was written in part included.
func (l *Log) drop(text []byte, why error) {
	lines := int64(bytes.Count(text, []byte("\n")))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		lines++
	}
	if l.lost == 0 {
		l.why = why
		if l.cut != nil {
			l.cut(why)
		}
	}
	l.dropped, l.lost = l.dropped+lines, l.lost+lines
}

// reason is an error without the path, which whoever reads the log knows.
func reason(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// rotate sets the file aside.
func (l *Log) rotate() {
	_ = l.file.Close()
	l.file = nil
	if l.rotated == 0 {
		_ = os.Rename(l.path, l.path+".first")
	} else {
		for n := generations; n > 1; n-- {
			_ = os.Rename(fmt.Sprintf("%s.%d", l.path, n-1), fmt.Sprintf("%s.%d", l.path, n))
		}
		_ = os.Rename(l.path, l.path+".1")
	}
	l.rotated++
	_ = l.reopen() // tried again at the next line
}

func (l *Log) close() {
	if l.file != nil {
		if l.dropped > 0 {
			_ = l.note() // there may be room by now
		}
		_ = l.file.Close()
	}
}
