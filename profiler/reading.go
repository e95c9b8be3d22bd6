package profiler

import (
	"context"
	"time"
)

// Reading is what a GPU says of itself while it works. Numbers that it does not tell are
// Unknown (-1).
type Reading struct {
	UUID  string `json:"uuid"` // of the whole GPU
	Name  string `json:"name,omitempty"`
	Index int    `json:"index"`

	TemperatureC int `json:"temperature_c"`
	PowerWatts   int `json:"power_watts"`
	ClockMHz     int `json:"clock_mhz"`
	MaxClockMHz  int `json:"max_clock_mhz"`
	BusyPercent  int `json:"busy_percent"`
	ECCErrors    int `json:"ecc_errors"` // that could not be corrected, since the driver started
	// Throttled says why the clock is lower than it could be: heat, power, hardware.
	Throttled []string `json:"throttled,omitempty"`

	MemoryBytes     int64 `json:"memory_bytes"`
	UsedMemoryBytes int64 `json:"used_memory_bytes"`

	// At is when the numbers were read. Stale says that the GPU has not answered since;
	// Problem is one clause saying why.
	At      time.Time `json:"at"`
	Stale   bool      `json:"stale,omitempty"`
	Problem string    `json:"problem,omitempty"`
}

// UnknownReading is a reading of a GPU that has told nothing yet.
func UnknownReading(index int) Reading {
	return Reading{Index: index, TemperatureC: Unknown, PowerWatts: Unknown, ClockMHz: Unknown, MaxClockMHz: Unknown,
		BusyPercent: Unknown, ECCErrors: Unknown, MemoryBytes: Unknown, UsedMemoryBytes: Unknown}
}

// Reader reads GPUs again and again. A GPU that does not answer keeps its last numbers,
// marked as stale. Readings may come beside an error: the last ones, all stale.
type Reader interface {
	Readings(ctx context.Context) ([]Reading, error)
	Close()
}
