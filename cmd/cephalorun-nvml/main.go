// Command cephalorun-nvml asks the NVIDIA driver for devices on behalf of
// cephalorun, which starts it, asks, and ends it; while a run trains it stays and
// reads the devices every so often. It is a program of its own because it needs
// cgo, and because a driver that hangs or crashes then takes nothing else with it.
package main

import (
	"os"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/nvml"
	"github.com/cephalorun/cephalorun/profiler/rpc"
)

func main() {
	os.Exit(rpc.Serve(source(api.New(), kernelRelease()), os.Stderr))
}

// source answers each request from the driver.
func source(library api.Interface, kernel string) rpc.Source {
	return func(request rpc.Request) profiler.Provider {
		return nvml.Provider{
			NVML:                library,
			Node:                request.Node,
			Limit:               request.Limit,
			DisplayReserveBytes: request.DisplayReserveBytes,
			WSL:                 nvml.UnderWSL(kernel),
		}
	}
}

// kernelRelease is empty where it cannot be read: not Linux, so not WSL.
func kernelRelease() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return string(data)
}
