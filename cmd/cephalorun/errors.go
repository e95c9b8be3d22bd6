package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator"
)

// failureRecord is an error as JSON.
type failureRecord struct {
	Kind    string                `json:"kind"`
	Code    int                   `json:"code"`
	Message string                `json:"message"`
	Failure *orchestrator.Failure `json:"failure,omitempty"`
}

// printError says what went wrong, last of all, on standard error.
func printError(a *app, o *options, err error, code int) {
	var script *orchestrator.ScriptError
	isScript := errors.As(err, &script)
	if o.json {
		record := failureRecord{Kind: "failure", Code: code, Message: err.Error()}
		if isScript {
			record.Failure = &script.Failure
		}
		if data, jsonErr := json.Marshal(record); jsonErr == nil {
			fmt.Fprintln(a.stderr, string(data))
			return
		}
	}
	text := "cephalorun: " + err.Error()
	if isScript {
		text = failureText(script.Failure)
	}
	if a.width > 0 && !o.noColor {
		head, rest, more := strings.Cut(text, "\n")
		text = "\x1b[1;31m" + head + "\x1b[0m"
		if more {
			text += "\n" + rest
		}
	}
	fmt.Fprintln(a.stderr, text)
}

// shownLines is how many of a rank's last lines are repeated below a failure.
const shownLines = 15

// failureText is the first real failure with what is needed to find its cause. The
// headline is repeated at the end, where people look first.
func failureText(f orchestrator.Failure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cephalorun: %s\n", f.Headline())
	lines := f.Lines[max(0, len(f.Lines)-shownLines):]
	for _, line := range lines {
		fmt.Fprintf(&b, "  | %s\n", line)
	}
	if len(f.Victims) > 0 {
		names := make([]string, len(f.Victims))
		for i, rank := range f.Victims {
			names[i] = fmt.Sprint(rank)
		}
		fmt.Fprintf(&b, "  stopped because of rank %d: rank %s\n", f.Rank, strings.Join(names, ", "))
	}
	fmt.Fprintf(&b, "  full log: %s", f.LogPath)
	if len(lines) > 0 {
		fmt.Fprintf(&b, "\ncephalorun: %s", f.Headline())
	}
	return b.String()
}
