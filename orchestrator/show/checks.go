package show

import (
	"fmt"
	"strings"
)

// Level is how bad a finding is.
type Level int

// Levels of a finding.
const (
	OK Level = iota
	Warning
	Fatal
)

// String is the word for the level.
func (l Level) String() string { return [...]string{"ok", "warning", "fails"}[l] }

// MarshalText writes the word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Check is one finding about this machine.
type Check struct {
	Name  string `json:"name"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
}

// Checks lists findings, one to a line.
func Checks(checks []Check) string {
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%-8s %s: %s\n", c.Level, c.Name, c.Text)
	}
	return b.String()
}
