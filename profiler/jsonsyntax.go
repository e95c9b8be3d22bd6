package profiler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// OpenJSON opens the object that a whole file must be. A file that is no JSON
// is one problem, which names the field where it stops being any.
func OpenJSON(data []byte, problems *ProblemList) *Fields {
	if p, bad := syntaxProblem(data); bad {
		problems.Add(p.Path, "%s", p.Message)
		return &Fields{problems: &ProblemList{}} // nothing more to say about it
	}
	givenTwice(data, problems)
	return NewFields("", data, problems)
}

// syntaxProblem says where and how a file stops being JSON: in which field,
// and whether it was cut off or holds NaN.
func syntaxProblem(data []byte) (Problem, bool) {
	var whole json.RawMessage
	err := json.Unmarshal(data, &whole)
	if err == nil {
		return Problem{}, false
	}
	path := syntaxPath(data)
	var syntax *json.SyntaxError
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return Problem{Message: "the file is empty"}, true
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)) && strings.Contains(err.Error(), "unexpected end"):
		return Problem{path, "the file is truncated: it ends here"}, true
	case errors.As(err, &syntax):
		rest := data[max(0, syntax.Offset-1):]
		line := 1 + bytes.Count(data[:min(syntax.Offset, int64(len(data)))], []byte("\n"))
		for _, word := range []string{"NaN", "Infinity"} {
			if bytes.HasPrefix(rest, []byte(word)) || bytes.HasPrefix(rest, []byte(word[1:])) {
				return Problem{path, fmt.Sprintf("is %s (line %d), which is not a number: measure again", word, line)}, true
			}
		}
		return Problem{path, fmt.Sprintf("is not JSON (line %d): %v", line, err)}, true
	default:
		return Problem{path, err.Error()}, true
	}
}

// level is one open object or list while a file is walked.
type level struct {
	list  bool
	index int
	key   string
	isKey bool // the next text is a key
}

// syntaxPath walks as far as the file is good and names the field reached.
func syntaxPath(data []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var stack []level
	for {
		token, err := decoder.Token()
		if err != nil {
			if errors.Is(err, io.EOF) && len(stack) == 0 {
				return ""
			}
			return pathOf(stack)
		}
		if delim, ok := token.(json.Delim); ok && (delim == '{' || delim == '[') {
			stack = append(stack, level{list: delim == '[', isKey: delim == '{'})
			continue
		}
		if _, ok := token.(json.Delim); ok {
			stack = stack[:len(stack)-1]
		}
		if len(stack) == 0 {
			return ""
		}
		top := &stack[len(stack)-1]
		switch {
		case top.list:
			top.index++
		case top.isKey:
			top.key, top.isKey = fmt.Sprint(token), false
		default:
			top.isKey = true
		}
	}
}

func pathOf(stack []level) string {
	var b strings.Builder
	for _, l := range stack {
		switch {
		case l.list:
			fmt.Fprintf(&b, "[%d]", l.index)
		case l.key != "":
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(l.key)
		}
	}
	return shortened(b.String(), mostPath)
}

// mostPath is how much of a field's path is shown: a file may be nested without end.
const mostPath = 200

// shortened leaves out the middle of a long text.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most/2], "") + "…" + strings.ToValidUTF8(text[len(text)-most/2:], "")
}
