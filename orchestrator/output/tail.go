package output

import (
	"bytes"
	"slices"
	"strings"
)

const (
	tailLines = 50
	tailWidth = 2000 // bytes of one line
)

// tail keeps the last lines of a stream.
type tail struct {
	kept []string
	next int // where the next line goes once kept is full
}

// add takes one line, which may be cut for keeping.
func (t *tail) add(text []byte) {
	text = bytes.TrimRight(text, "\r\n")
	if at := bytes.LastIndexByte(text, '\r'); at >= 0 { // a progress bar: its last state
		text = text[at+1:]
	}
	s := strings.ToValidUTF8(string(text[:min(len(text), tailWidth)]), "?")
	if len(t.kept) < tailLines {
		t.kept = append(t.kept, s)
		return
	}
	t.kept[t.next] = s
	t.next = (t.next + 1) % tailLines
}

// lines lists them, oldest first.
func (t *tail) lines() []string {
	return slices.Concat(t.kept[t.next:], t.kept[:t.next])
}
