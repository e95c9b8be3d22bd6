package orchestrator

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// keptWords is how many of the launcher's last lines are kept for a report.
const keptWords = 30

// launcherWords is what torchrun itself prints, and workers before their output is
// their own.
type launcherWords struct {
	mu   sync.Mutex
	file *os.File
	last []string
}

func openLauncherWords(path string) (*launcherWords, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &launcherWords{file: f}, nil
}

// line keeps one line; a disk that is full costs the line.
func (w *launcherWords) line(text []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.file.Write(text)
	w.last = append(w.last, strings.TrimRight(string(text), "\r\n"))
	if len(w.last) > keptWords {
		w.last = w.last[1:]
	}
}

func (w *launcherWords) tail() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.last)
}

func (w *launcherWords) close() { _ = w.file.Close() }
