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
func (e *InfeasibleError) Error() string { return "no plan fits: " + e.lacks() }

// lacks is the sentence, for one of several plans.
func (e *InfeasibleError) lacks() string {
	missing := count(int(e.MissingBytes), "byte")
	if words := amount(e.MissingBytes); words != missing {
		missing += " (" + words + ")"
	}
	return fmt.Sprintf("device %d (%s) lacks %s: %s; %s", e.Rank, e.Device, missing, e.Detail, e.Remedy)
}
