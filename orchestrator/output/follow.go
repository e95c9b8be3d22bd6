package output

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// followTick is the pause between two looks at a log that is followed.
const followTick = 100 * time.Millisecond

// Reader reads the log of one rank, from its end.
type Reader struct {
	Path string
	// Lines is how many of the last lines to begin with; less than 0 is all.
	Lines int
	// Prefix stands before every line.
	Prefix string
	To     io.Writer
}

// Print prints the last lines.
func (r Reader) Print() error {
	f, err := r.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return r.copy(bufio.NewReader(f))
}

// Follow prints the last lines and goes on until over says that nothing more comes, or
// the context ends.
func (r Reader) Follow(ctx context.Context, over func() bool) error {
	f, err := r.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	tick := time.NewTicker(followTick)
	defer tick.Stop()
	in := bufio.NewReader(f)
	for {
		last := over() // asked first: what was written before the end is still read
		if err := r.copy(in); err != nil {
			return err
		}
		if next := r.rotated(f); next != nil {
			_ = f.Close()
			f, in = next, bufio.NewReader(next)
			continue
		}
		if last {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// rotated opens the log anew if another file stands in its place by now.
func (r Reader) rotated(f *os.File) *os.File {
	then, err := f.Stat()
	if err != nil {
		return nil
	}
	now, err := os.Stat(r.Path)
	if err != nil || os.SameFile(then, now) {
		return nil
	}
	next, err := os.Open(r.Path)
	if err != nil {
		return nil
	}
	return next
}

// open opens the log at the first of its last lines.
func (r Reader) open() (*os.File, error) {
	if info, err := os.Stat(r.Path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read log: %s is not a file", r.Path)
	}
	f, err := os.Open(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no log %s: %w", r.Path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	if r.Lines >= 0 {
		at, err := lastLines(f, r.Lines)
		if err == nil {
			_, err = f.Seek(at, io.SeekStart)
		}
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("read log: %w", err)
		}
	}
	return f, nil
}

// copy prints what is there now.
func (r Reader) copy(in *bufio.Reader) error {
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			if _, err := io.WriteString(r.To, r.Prefix+string(line)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
}

// lastLines is where the last n lines begin, found from the end in blocks.
func lastLines(f *os.File, n int) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	const block = 64 << 10
	buffer := make([]byte, block)
	end := info.Size()
	if n == 0 {
		return end, nil
	}
	seen := 0
	for at := end; at > 0; {
		size := min(at, block)
		at -= size
		part := buffer[:size]
		if _, err := f.ReadAt(part, at); err != nil {
			return 0, err
		}
		if at+size == end { // the newline at the very end ends the last line
			part = bytes.TrimSuffix(part, []byte("\n"))
		}
		for i := len(part) - 1; i >= 0; i-- {
			if part[i] == '\n' {
				if seen++; seen == n {
					return at + int64(i) + 1, nil
				}
			}
		}
	}
	return 0, nil
}
