package profiler

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Bounds on what is read as one file; beyond them it is another file than was meant.
const (
	// MostInputBytes is more than any profile, plan or fleet has.
	MostInputBytes = 64 << 20
	// MostYAMLBytes is more than what people write by hand.
	MostYAMLBytes = 1 << 20
)

// pipePatience is how long the writer of a pipe may take.
const pipePatience = 10 * time.Second

// ReadFile reads a regular file of so many bytes at most. Whatever else has that name is refused:
// a pipe or a device might never end.
func ReadFile(path string, most int64) ([]byte, error) { return readInput(path, most, 0) }

// ReadInput is ReadFile for what is read only once, which may be a pipe, such as /dev/stdin or the
// output of another command. Its writer is not waited for without end.
func ReadInput(path string, most int64) ([]byte, error) { return readInput(path, most, pipePatience) }

func readInput(path string, most int64, patience time.Duration) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	pipe := info.Mode()&fs.ModeNamedPipe != 0
	switch {
	case info.Mode().IsRegular():
	case !pipe:
		return nil, fmt.Errorf("%s is %s, and must be a file", path, kindOf(info.Mode()))
	case patience == 0:
		return nil, fmt.Errorf("%s is a pipe, and must be a file: it may be read again", path)
	}
	// A pipe without a writer must not hold us up; to a file this makes no difference.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if pipe {
		return readPipe(f, path, most, patience)
	}
	return readSome(f, path, most)
}

func readSome(f io.Reader, path string, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes, which no such file has", path, most)
	}
	return data, err
}

// readPipe reads to the end, which is also what a pipe shows whose writer has not come yet.
func readPipe(f *os.File, path string, most int64, patience time.Duration) ([]byte, error) {
	deadline := time.Now().Add(patience)
	if err := f.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	for {
		data, err := readSome(f, path, most)
		if errors.Is(err, os.ErrDeadlineExceeded) || err == nil && len(data) == 0 && time.Now().After(deadline) {
			return nil, fmt.Errorf("%s is a pipe, and nobody wrote all of it within %s", path, patience)
		}
		if err != nil || len(data) > 0 {
			return data, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	default:
		return "no regular file"
	}
}
