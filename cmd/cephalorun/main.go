// Command cephalorun trains a PyTorch FSDP script on unequal devices.
package main

import (
	"os"

	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

func main() { os.Exit(start()) }

// start is the whole program; its result is the exit code.
func start() int {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		if err := supervise.Guard(); err != nil {
			return exitMachine
		}
		return exitDone
	}
	a, release := newApp()
	defer release()
	return run(os.Args[1:], a)
}
