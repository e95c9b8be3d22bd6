package rpc

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// bridge is the logger that go-plugin wants, writing into ours.
func bridge(logger *slog.Logger) hclog.Logger {
	if logger == nil {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: BinaryName, Level: hclog.Debug, Output: slogWriter{logger}, JSONFormat: true, DisableTime: true})
}

// slogWriter takes one JSON line a call and logs it. All is of the level debug
// but warnings and errors, which go-plugin gives for a plugin that was killed
// on purpose, too: they come out as debug with their level named.
type slogWriter struct{ logger *slog.Logger }

var _ io.Writer = slogWriter{}

func (w slogWriter) Write(line []byte) (int, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		w.logger.Debug("plugin", slog.String("line", string(line)))
		return len(line), nil
	}
	message, _ := fields["@message"].(string)
	names := make([]string, 0, len(fields))
	for name := range fields {
		if name != "@message" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	attributes := make([]slog.Attr, 0, len(names))
	for _, name := range names {
		attributes = append(attributes, slog.Any(trimAt(name), fields[name]))
	}
	w.logger.LogAttrs(context.Background(), slog.LevelDebug, message, attributes...)
	return len(line), nil
}

func trimAt(name string) string {
	if len(name) > 1 && name[0] == '@' {
		return "plugin_" + name[1:]
	}
	return name
}
