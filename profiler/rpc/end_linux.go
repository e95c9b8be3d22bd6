package rpc

import (
	"os"
	"syscall"
)

// dieWithHost makes the kernel kill the child when its parent dies, however
// that comes about.
func dieWithHost() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// endProcess ends this process at once, whatever its threads are doing.
func endProcess() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
