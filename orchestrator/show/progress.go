package show

import (
	"fmt"
	"strings"
)

// Step is one step of the whole run.
type Step struct {
	Number           int        `json:"step"`
	Loss             float64    `json:"loss"`
	HasLoss          bool       `json:"-"`
	Samples          int        `json:"samples"`
	Ms               float64    `json:"step_ms"`
	SamplesPerSecond float64    `json:"samples_per_second"`
	Ranks            []RankStep `json:"ranks"`
}

// RankStep is one rank's part of a step.
type RankStep struct {
	ComputeMs       float64 `json:"compute_ms"`
	WaitMs          float64 `json:"wait_ms"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes"`
}

// Progress is one line about a step. It shortens the part on the ranks until it fits
// into width columns; 0 is no limit.
func Progress(s Step, width int) string {
	head := fmt.Sprintf("step %d", s.Number)
	if s.HasLoss {
		head += fmt.Sprintf("  loss %.4f", s.Loss)
	}
	head += fmt.Sprintf("  %s samples/s  %s", rate(s.SamplesPerSecond), Ms(s.Ms))
	forms := []func(RankStep) string{
		func(r RankStep) string {
			return fmt.Sprintf("%s+%s wait, %s", Ms(r.ComputeMs), Ms(r.WaitMs), Bytes(r.PeakMemoryBytes))
		},
		func(r RankStep) string { return fmt.Sprintf("%.0f+%.0f ms", r.ComputeMs, r.WaitMs) },
	}
	for _, form := range forms {
		var parts []string
		for i, r := range s.Ranks {
			parts = append(parts, fmt.Sprintf("%d: %s", i, form(r)))
		}
		line := head + "  | " + strings.Join(parts, " | ")
		if width == 0 || len(line) <= width {
			return line
		}
	}
	return head[:min(len(head), max(width, 0))]
}
