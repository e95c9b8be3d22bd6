package output

import (
	"bytes"
	"slices"
	"strings"
)

const (
	tailLines = 50
	tailWidth = 2000      // bytes of one line
	tailRaw   = 128 << 10 // bytes that are kept before they are looked at
)

// tail keeps the last lines of a stream. They are cut to size when there are many, and not
// one by one: most are never asked for.
type tail struct{ raw []byte }

// add takes text as it comes.
func (t *tail) add(text []byte) {
	t.raw = append(t.raw, text...)
	if len(t.raw) > tailRaw {
		end := text[len(text)-1:]
		t.raw = append(t.raw[:0], strings.Join(t.lines(), "\n")...)
		if end[0] == '\n' {
			t.raw = append(t.raw, end...)
		}
	}
}

// lines lists them, oldest first.
func (t *tail) lines() []string {
	var kept []string
	for rest := bytes.TrimSuffix(t.raw, []byte("\n")); len(kept) < tailLines && len(t.raw) > 0; {
		at := bytes.LastIndexByte(rest, '\n')
		kept = append(kept, shown(rest[at+1:]))
		if at < 0 {
			break
		}
		rest = rest[:at]
	}
	slices.Reverse(kept)
	return kept
}

// shown is a line as it is kept.
func shown(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	if at := bytes.LastIndexByte(line, '\r'); at >= 0 { // a progress bar: its last state
		line = line[at+1:]
	}
	return strings.ToValidUTF8(string(line[:min(len(line), tailWidth)]), "?")
}
