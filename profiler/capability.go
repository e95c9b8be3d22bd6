package profiler

import "fmt"

// Capability is a CUDA compute capability, {major, minor}; {0, 0} is unknown.
type Capability [2]int

// Known reports whether there is a capability at all.
func (c Capability) Known() bool { return c[0] > 0 }

// AtLeast reports whether c is other or newer.
func (c Capability) AtLeast(other Capability) bool {
	return c[0] > other[0] || c[0] == other[0] && c[1] >= other[1]
}

// String is "8.0", or "-" when unknown.
func (c Capability) String() string {
	if !c.Known() {
		return "-"
	}
	return fmt.Sprintf("%d.%d", c[0], c[1])
}

// SM is the name of the architecture in a torch build: "sm_80".
func (c Capability) SM() string { return fmt.Sprintf("sm_%d%d", c[0], c[1]) }
