package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
	"github.com/cephalorun/cephalorun/templates"
)

// chartFormat is how a chart is written, by the end of the file's name.
func chartFormat(path string) (func(templates.Chart, io.Writer) error, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".svg":
		return templates.Chart.SVG, nil
	case ".html", ".htm":
		return templates.Chart.HTML, nil
	}
	return nil, fmt.Errorf("%w: --chart: %s must end in .svg or .html", orchestrator.ErrUsage, path)
}

// writeChart writes the strategies as bars.
func writeChart(path string, s simulation, list []solver.Outcome) error {
	format, err := chartFormat(path)
	if err != nil {
		return err
	}
	c := templates.Chart{
		Title:    fmt.Sprintf("%s on %s", s.Model, s.Cluster),
		Subtitle: fmt.Sprintf("predicted samples per second, %s, global batch %d", show.Count(s.Devices, "device"), s.GlobalBatch),
		Unit:     "samples/s",
	}
	for _, o := range list {
		b := templates.Bar{Name: o.Strategy, Value: o.SamplesPerSecond, Label: o.How, Ours: o.Strategy == solver.StrategyCephalo}
		if o.Fits() {
			b.Label = fmt.Sprintf("%s samples/s, %.0f %% computing", show.Rate(o.SamplesPerSecond), 100*o.Utilisation())
		}
		c.Bars = append(c.Bars, b)
	}
	if len(s.Curve) > 0 {
		c.Line.Title = fmt.Sprintf("samples per second of %s by global batch", solver.StrategyCephalo)
	}
	for _, p := range s.Curve {
		c.Line.Points = append(c.Line.Points, templates.LinePoint{Size: p.GlobalBatch, Value: p.SamplesPerSecond,
			Label: show.Rate(p.SamplesPerSecond) + " samples/s", Chosen: p.GlobalBatch == s.GlobalBatch})
	}
	c.Table.Columns, c.Table.Rows = show.StrategyRows(list, s.operations)
	var content bytes.Buffer
	if err := format(c, &content); err != nil {
		return err
	}
	if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
		return fmt.Errorf("%w: --chart: %w", orchestrator.ErrUsage, err)
	}
	return nil
}
