package events

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// Journal keeps events, one to a line.
type Journal struct {
	mu   sync.Mutex
	file *os.File
	also io.Writer // nil, or where each line goes too
}

// OpenJournal opens a file to append to. Each line is also written to also, if that
// is not nil.
func OpenJournal(path string, also io.Writer) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open event file: %w", err)
	}
	return &Journal{file: file, also: also}, nil
}

// Write keeps one event.
func (j *Journal) Write(e Event) error {
	line, err := e.line()
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.also != nil {
		if _, err := j.also.Write(line); err != nil {
			return fmt.Errorf("write event: %w", err)
		}
	}
	if _, err := j.file.Write(line); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}
