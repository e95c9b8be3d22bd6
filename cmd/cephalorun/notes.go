package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
)

// notes is a log for people: what the machinery below a run has to say, as plain sentences, each
// once.
type notes struct {
	to   io.Writer
	said *sync.Map
}

func newNotes(to io.Writer) *slog.Logger { return slog.New(notes{to, &sync.Map{}}) }

// Enabled implements slog.Handler.
func (notes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (n notes) Handle(_ context.Context, r slog.Record) error {
	text := "note: " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += ": " + a.Value.String()
		return true
	})
	if _, before := n.said.LoadOrStore(text, true); before {
		return nil
	}
	_, err := io.WriteString(n.to, bounded(text)+"\n")
	return err
}

// WithAttrs implements slog.Handler; nobody uses it.
func (n notes) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements slog.Handler; nobody uses it.
func (n notes) WithGroup(string) slog.Handler { return n }
