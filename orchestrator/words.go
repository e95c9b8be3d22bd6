package orchestrator

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// keptWords is how many of the launcher's last lines are kept for a report.
const keptWords = 30

// launcherWords is what torchrun itself prints, and workers before their output is
// their own.
type launcherWords struct {
	mu   sync.Mutex
	file *os.File
	last []string
	// died is the rank that torchrun saw die first.
	died *firstFailure
	// signal is the one that ended torchrun, by its own word; 0 without.
	signal int
}

// firstFailure is the launcher's line about the rank that died first.
type firstFailure struct {
	Rank     int `json:"rank"`
	ExitCode int `json:"exit_code"` // below 0: the signal that killed it
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
	var told struct {
		First  *firstFailure `json:"first_failure"`
		Signal int           `json:"got_signal"`
	}
	if json.Unmarshal(text, &told) == nil && told.First != nil {
		w.died = told.First
		return
	}
	if told.Signal > 0 {
		w.signal = told.Signal
		return
	}
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

// exceptionLine is how Python names what ended a program.
var exceptionLine = regexp.MustCompile(`^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt): .+`)

// lastException is the last line that names an exception, other than torchrun's about a
// worker that failed; empty without one.
func lastException(lines []string) string {
	for _, line := range slices.Backward(lines) {
		text := strings.TrimSpace(line)
		if _, rest, found := strings.Cut(text, "]: "); found && strings.HasPrefix(text, "[rank") {
			text = strings.TrimSpace(rest)
		}
		if exceptionLine.MatchString(text) && !strings.Contains(text, "ChildFailedError") {
			return firstLine(text)
		}
	}
	return ""
}

// killedFirst is the rank that was killed before torchrun ended the others, or NoRank.
func (w *launcherWords) killedFirst() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.died == nil || w.died.ExitCode >= 0 {
		return events.NoRank
	}
	return w.died.Rank
}

// signalOf is the name of the signal that killed the rank which was killed first; empty
// for other ranks, and where the launcher did not see it.
func (w *launcherWords) signalOf(rank int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.died == nil || w.died.Rank != rank || w.died.ExitCode >= 0 {
		return ""
	}
	return unix.SignalName(syscall.Signal(-w.died.ExitCode))
}

// ownSignal is the signal that ended torchrun itself, by its own word; 0 without.
func (w *launcherWords) ownSignal() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.signal
}

func (w *launcherWords) close() { _ = w.file.Close() }
