package orchestrator

import (
	"fmt"
	"strings"
	"unicode"
)

// shownCharacters is how much of one line is shown; the log has all of it.
const shownCharacters = 400

func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return Shown(text)
}

// Shown is a line as a terminal may get it: without characters that would move its cursor
// or change its colours, and not too long.
func Shown(line string) string { return ShownUpTo(line, shownCharacters) }

// ShownUpTo is Shown with so many characters at most.
func ShownUpTo(line string, most int) string {
	line = strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, line)
	if all := []rune(line); len(all) > most {
		return string(all[:most]) + fmt.Sprintf(" … (%d characters more)", len(all)-most)
	}
	return line
}
