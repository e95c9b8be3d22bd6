package solver

import "fmt"

// InfeasibleError says that no plan fits into the devices' memory.
type InfeasibleError struct {
	// Rank and Device name the device that is closest to fitting, or the one
	// that does not fit what it was given.
	Rank   int
	Device string
	// MissingBytes is what is lacking there.
	MissingBytes int64
	// Remedy is what would make it fit.
	Remedy string
	// Detail says what needs the memory.
	Detail string
}

// Error is one sentence with the device, the bytes and the remedy.
func (e *InfeasibleError) Error() string {
	missing := fmt.Sprintf("%d bytes", e.MissingBytes)
	if words := amount(e.MissingBytes); words != missing {
		missing += " (" + words + ")"
	}
	return fmt.Sprintf("no plan fits: device %d (%s) lacks %s: %s; %s", e.Rank, e.Device, missing, e.Detail, e.Remedy)
}

// amount is a number of bytes in words.
func amount(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<30:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}
