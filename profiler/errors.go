package profiler

import (
	"errors"
	"fmt"
	"strings"
)

// Classes of failure. ErrNoDriver and ErrCannotAsk must not be confused: the
// first is an answer ("this machine has no NVIDIA driver"), the second is none
// ("the driver did not reply"), and falling back to the processor is right for
// the first only.
var (
	// ErrNoDriver: there is no NVIDIA driver here, hence no CUDA device.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrCannotAsk: whether there are devices could not be found out.
	ErrCannotAsk = errors.New("could not ask for devices")
	// ErrNoDevice: there is no device to run on (left), though asking worked.
	ErrNoDevice = errors.New("no usable device")
	// ErrInvalid: an input (file, flag, environment variable) is wrong.
	ErrInvalid = errors.New("invalid input")
)

// Problem is one thing wrong in an input, with the path of the field.
type Problem struct {
	Path    string
	Message string
}

// String is "devices[1].memory: …".
func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// ProblemsError is an input with everything that is wrong in it.
// errors.Is(err, ErrInvalid) holds.
type ProblemsError struct {
	// Source names the input: a file, a flag.
	Source string
	// Problems is never empty; in the order of the input.
	Problems []Problem
}

// Error lists the problems, one to a line when there are several.
func (e *ProblemsError) Error() string {
	if len(e.Problems) == 1 {
		return e.Source + ": " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d problems:", e.Source, len(e.Problems))
	for _, p := range e.Problems[:min(len(e.Problems), mostProblems)] {
		b.WriteString("\n  " + p.String())
	}
	if more := len(e.Problems) - mostProblems; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// mostProblems is how many problems of one input are listed.
const mostProblems = 30

// Unwrap makes every ProblemsError an ErrInvalid.
func (e *ProblemsError) Unwrap() error { return ErrInvalid }

// ProblemList gathers problems while an input is checked.
type ProblemList struct {
	problems []Problem
	seen     map[string]bool
}

// Add notes one problem. Only the first one for a path is kept, and none below
// it, so that a missing field is not reported a second time as a bad value.
func (l *ProblemList) Add(path, format string, args ...any) {
	for i := range path {
		if (path[i] == '.' || path[i] == '[') && l.seen[path[:i]] {
			return
		}
	}
	if path != "" && l.seen[path] {
		return
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[path] = true
	l.problems = append(l.problems, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Empty reports whether nothing was wrong.
func (l *ProblemList) Empty() bool { return len(l.problems) == 0 }

// Err is nil without problems, else a ProblemsError for source.
func (l *ProblemList) Err(source string) error {
	if l.Empty() {
		return nil
	}
	return &ProblemsError{Source: source, Problems: l.problems}
}
