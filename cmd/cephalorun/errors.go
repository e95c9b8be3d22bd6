package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
func printError(w io.Writer, a *app, o *options, err error, code int) {
	var script *orchestrator.ScriptError
	isScript := errors.As(err, &script)
	if o.json {
		record := failureRecord{Kind: "failure", Code: code, Message: bounded(err.Error())}
		if isScript {
			record.Failure = &script.Failure
		}
		if data, jsonErr := json.Marshal(record); jsonErr == nil {
			fmt.Fprintln(w, string(data))
			return
		}
	}
	last := "cephalorun: " + bounded(err.Error())
	if isScript {
		fmt.Fprint(w, failureText(script.Failure))
		last = "cephalorun: " + script.Failure.Headline()
		if code == exitGaveUp {
			last = "cephalorun: " + bounded(err.Error())
		}
	}
	if a.width > 0 && !o.noColor {
		last = "\x1b[1;31m" + last + "\x1b[0m"
	}
	fmt.Fprintln(w, last)
}

// Bounds on what is said of an error, whatever file or argument it comes from.
const (
	mostErrorLines = 60
	mostErrorLine  = 2000 // characters
)

// bounded is a text as a terminal may get it: not too long, and without characters that would
// write over the screen.
func bounded(text string) string {
	lines := strings.Split(text, "\n")
	if more := len(lines) - mostErrorLines; more > 0 {
		lines = append(lines[:mostErrorLines:mostErrorLines], fmt.Sprintf("… (%d lines more)", more))
	}
	for i := range lines {
		lines[i] = orchestrator.ShownUpTo(lines[i], mostErrorLine)
	}
	return strings.Join(lines, "\n")
}

// shownLines is how many of a rank's last lines are repeated below a failure.
const shownLines = 15

// failureText is what is needed to find the cause of a failure; the headline follows
// it, last of all, where people look first.
func failureText(f orchestrator.Failure) string {
	var b strings.Builder
	if f.Rank >= 0 && len(f.Lines) > 0 {
		fmt.Fprintf(&b, "last lines of rank %d:\n", f.Rank)
	}
	for _, line := range f.Lines[max(0, len(f.Lines)-shownLines):] {
		fmt.Fprintf(&b, "  | %s\n", orchestrator.Shown(line))
	}
	if len(f.Victims) > 0 {
		names := make([]string, len(f.Victims))
		for i, rank := range f.Victims {
			names[i] = fmt.Sprint(rank)
		}
		if len(names) == 1 {
			fmt.Fprintf(&b, "rank %s was stopped because of rank %d; what it printed then is in its log\n", names[0], f.Rank)
		} else {
			fmt.Fprintf(&b, "ranks %s were stopped because of rank %d; what they printed then is in their logs\n", strings.Join(names, ", "), f.Rank)
		}
	}
	fmt.Fprintf(&b, "full log: %s\n", f.LogPath)
	if f.NotRestarted != "" {
		fmt.Fprintf(&b, "not restarted (cause: %s): %s\n", f.Cause, f.NotRestarted)
	}
	return b.String()
}
