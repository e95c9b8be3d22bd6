package orchestrator

import (
	"os"

	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

// ownStart is when this process started, in the kernel's ticks; with the pid it names
// the process for good. 0 when the kernel does not say.
func ownStart() uint64 {
	p, err := supervise.ReadProcess(os.Getpid())
	if err != nil {
		return 0
	}
	return p.StartTicks
}
