package hostwatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
)

// State is machine.json: what the machine said last.
type State struct {
	Updated time.Time          `json:"updated"`
	Memory  *Memory            `json:"memory,omitempty"`
	Disks   []Disk             `json:"disks,omitempty"`
	Network *Network           `json:"network,omitempty"`
	GPUs    []profiler.Reading `json:"gpus,omitempty"`
	// Problem is why the GPUs could not be read; empty if they could.
	Problem string `json:"problem,omitempty"`
}

// Memory is the host's as far as this run may use it.
type Memory struct {
	TotalBytes int64  `json:"total_bytes"`
	FreeBytes  int64  `json:"free_bytes"`
	Source     string `json:"source"` // what limits it: host or cgroup
	OOMKills   int64  `json:"oom_kills"`
}

// Disk is the one that a folder is on.
type Disk struct {
	Path       string    `json:"path"`
	TotalBytes int64     `json:"total_bytes"`
	FreeBytes  int64     `json:"free_bytes"`
	At         time.Time `json:"at"` // zero before it has answered
	Stale      bool      `json:"stale,omitempty"`
	Problem    string    `json:"problem,omitempty"` // its answer was an error
}

// Network is what went over all links but the host's own since the last look.
type Network struct {
	SentBytesPerSecond     int64 `json:"sent_bytes_per_second"`
	ReceivedBytesPerSecond int64 `json:"received_bytes_per_second"`
}

// Lines say it to a person. A number that is not known is "-".
func (s State) Lines() []string {
	var lines []string
	if m := s.Memory; m != nil {
		line := fmt.Sprintf("host memory: %s of %s left (%s)", show.Bytes(m.FreeBytes), show.Bytes(m.TotalBytes), m.Source)
		if m.OOMKills > 0 {
			line += fmt.Sprintf("; the kernel has ended %d processes of the control group for want of it", m.OOMKills)
		}
		lines = append(lines, line)
	}
	for _, d := range s.Disks {
		lines = append(lines, d.line())
	}
	if n := s.Network; n != nil {
		lines = append(lines, fmt.Sprintf("network: %s/s sent, %s/s received", show.Bytes(n.SentBytesPerSecond), show.Bytes(n.ReceivedBytesPerSecond)))
	}
	for _, g := range s.GPUs {
		lines = append(lines, gpuLine(g))
	}
	if s.Problem != "" {
		lines = append(lines, "GPUs: "+s.Problem)
	}
	return lines
}

func (d Disk) line() string {
	switch {
	case d.Problem != "":
		return fmt.Sprintf("disk of %s: %s", d.Path, d.Problem)
	case d.At.IsZero():
		return fmt.Sprintf("disk of %s: does not answer", d.Path)
	case d.Stale:
		return fmt.Sprintf("disk of %s: does not answer; %s of %s were left at %s", d.Path, show.Bytes(d.FreeBytes), show.Bytes(d.TotalBytes), clock(d.At))
	}
	return fmt.Sprintf("disk of %s: %s of %s left", d.Path, show.Bytes(d.FreeBytes), show.Bytes(d.TotalBytes))
}

func gpuLine(g profiler.Reading) string {
	line := fmt.Sprintf("GPU %d", g.Index)
	if g.Name != "" {
		line += " " + g.Name
	}
	if g.At.IsZero() {
		return line + ": " + g.Problem
	}
	line += fmt.Sprintf(": %s °C, %s W, %s of %s MHz", known(g.TemperatureC), known(g.PowerWatts), known(g.ClockMHz), known(g.MaxClockMHz))
	if len(g.Throttled) > 0 {
		line += " (held back by " + strings.Join(g.Throttled, " and ") + ")"
	}
	line += fmt.Sprintf(", %s %% busy, %s of %s, %s memory errors", known(g.BusyPercent), show.Bytes(g.UsedMemoryBytes), show.Bytes(g.MemoryBytes), known(g.ECCErrors))
	if g.Stale {
		line += fmt.Sprintf("; these numbers are stale since %s: it %s", clock(g.At), g.Problem)
	}
	return line
}

func known(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }
