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
	return fmt.Sprintf("no plan fits: device %d (%s) lacks %d bytes (%s): %s; %s",
		e.Rank, e.Device, e.MissingBytes, gib(e.MissingBytes), e.Detail, e.Remedy)
}

func gib(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }
