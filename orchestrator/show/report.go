package show

import (
	"fmt"
	"strings"
)

// Report is what a run came to.
type Report struct {
	Run     string `json:"run"`
	Dir     string `json:"dir"`
	Outcome string `json:"outcome"` // done | failed | stopped
	// Strategy is the plan's.
	Strategy    string `json:"strategy"`
	GlobalBatch int    `json:"global_batch"`
	Steps       int    `json:"steps"` // that were made since the run was started or taken up again
	// LastStep is the number of the last step, those before a resume counted.
	LastStep int `json:"last_step"`
	// NothingLeft says that the script ended without a step because all of them were done before.
	NothingLeft bool    `json:"nothing_left,omitempty"`
	FirstLoss   float64 `json:"first_loss"`
	LastLoss    float64 `json:"last_loss"`
	HasLoss     bool    `json:"has_loss"`
	// SkippedSteps are the first ones, which the medians leave out.
	SkippedSteps     int     `json:"skipped_steps"`
	PredictedStepMs  float64 `json:"predicted_step_ms"`
	MeasuredStepMs   float64 `json:"measured_step_ms"` // median; 0 when too few steps
	SamplesPerSecond float64 `json:"samples_per_second"`
	Seconds          float64 `json:"seconds"`
	// Even is nil unless the even split was run too.
	Even  *EvenSplit  `json:"even,omitempty"`
	Ranks []ReportRow `json:"ranks"`
}

// EvenSplit is what the even split of the same global batch came to.
type EvenSplit struct {
	PredictedStepMs float64 `json:"predicted_step_ms"`
	MeasuredStepMs  float64 `json:"measured_step_ms"` // median
	Steps           int     `json:"steps"`            // that the median is of
	// Problem says why there is no time, or why it ended early.
	Problem string `json:"problem,omitempty"`
}

// ReportRow is one rank: predicted beside measured. Times are medians.
type ReportRow struct {
	Rank                 int     `json:"rank"`
	Device               string  `json:"device"`
	Batch                int     `json:"batch"`
	PredictedComputeMs   float64 `json:"predicted_compute_ms"`
	MeasuredComputeMs    float64 `json:"measured_compute_ms"`
	PredictedWaitMs      float64 `json:"predicted_wait_ms"`
	MeasuredWaitMs       float64 `json:"measured_wait_ms"`
	PredictedMemoryBytes int64   `json:"predicted_memory_bytes"`
	MeasuredMemoryBytes  int64   `json:"measured_memory_bytes"`
}

// Unreported counts steps that were made and of which nothing else is known: those that a rank
// could not report any more before it died.
func (r *Report) Unreported(steps int) {
	if steps > 0 {
		r.Steps, r.SkippedSteps, r.LastStep = r.Steps+steps, r.SkippedSteps+steps, r.LastStep+steps
	}
}

// Columns of the table of ranks.
func (r Report) Columns() []string {
	return []string{"rank", "device", "batch", "compute predicted", "measured", "wait predicted", "measured", "memory predicted", "measured"}
}

// Rows of the table of ranks.
func (r Report) Rows() [][]string {
	var rows [][]string
	for _, k := range r.Ranks {
		rows = append(rows, []string{
			number(k.Rank), k.Device, number(k.Batch), Ms(k.PredictedComputeMs), r.measured(k.MeasuredComputeMs),
			Ms(k.PredictedWaitMs), r.measured(k.MeasuredWaitMs), Bytes(k.PredictedMemoryBytes), Bytes(k.MeasuredMemoryBytes),
		})
	}
	return rows
}

func (r Report) measured(ms float64) string {
	if r.MeasuredStepMs == 0 {
		return none
	}
	return Ms(ms)
}

// Text is the closing report.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s: %s after %s in %.1f s", r.Run, r.Outcome, Count(r.Steps, "step"), r.Seconds)
	if r.LastStep > r.Steps {
		fmt.Fprintf(&b, ", at step %d", r.LastStep)
	}
	if r.NothingLeft {
		b.WriteString(": the script found nothing left to do")
	}
	if r.HasLoss {
		fmt.Fprintf(&b, ", loss %.4f to %.4f", r.FirstLoss, r.LastLoss)
	}
	b.WriteString("\n")
	if r.MeasuredStepMs > 0 {
		fmt.Fprintf(&b, "step: predicted %s, measured %s (%+.0f %%), %s samples/s; medians of %s\n",
			Ms(r.PredictedStepMs), Ms(r.MeasuredStepMs), r.Off(), rate(r.SamplesPerSecond), Count(r.Steps-r.SkippedSteps, "step"))
	}
	if r.Even != nil {
		b.WriteString(r.Comparison() + "\n")
	}
	if r.Steps > 0 {
		b.WriteString(table(r.Columns(), r.Rows(), 2))
	}
	fmt.Fprintf(&b, "all of it: %s\n", r.Dir)
	return b.String()
}

// Comparison says what the plan gained over the even split.
func (r Report) Comparison() string {
	e := r.Even
	if e.Problem != "" {
		return "even split: " + e.Problem
	}
	text := fmt.Sprintf("even split: predicted %s, measured %s; median of %s", Ms(e.PredictedStepMs), Ms(e.MeasuredStepMs), Count(e.Steps, "step"))
	if r.MeasuredStepMs > 0 {
		text += fmt.Sprintf("; the plan is %.2f times as fast", e.MeasuredStepMs/r.MeasuredStepMs)
	}
	return text
}

// Off is by how many per cent the measured step differs from the prediction.
func (r Report) Off() float64 {
	if r.PredictedStepMs == 0 {
		return 0
	}
	return 100 * (r.MeasuredStepMs/r.PredictedStepMs - 1)
}
