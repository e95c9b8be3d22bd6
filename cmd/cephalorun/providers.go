package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/rpc"
)

// pluginVariable names the plugin's file where it does not lie beside this program.
const pluginVariable = "CEPHALO_NVML_PLUGIN"

// readAllVariable, set to anything, has all GPUs of the host read in every run, also those that
// the run does not use: for tests of the plugin where there is no GPU.
const readAllVariable = "CEPHALO_READ_ALL_GPUS"

// gpuProvider asks the plugin for GPUs.
func gpuProvider(node string, log *slog.Logger) profiler.Provider {
	return pluginOrNone{
		plugin:    rpc.Client{Path: os.Getenv(pluginVariable), Request: rpc.Request{Node: node}, Logger: log},
		hasPlugin: func() bool { _, err := rpc.Locate(os.Getenv(pluginVariable)); return err == nil },
		hasDriver: driverLoaded,
	}
}

// pluginOrNone decides what a missing plugin means: where no driver is loaded either,
// there is nothing that it could have found; where one is, not knowing is an error.
type pluginOrNone struct {
	plugin    profiler.Provider
	hasPlugin func() bool
	hasDriver func() bool
}

var _ profiler.Provider = pluginOrNone{}

// Devices implements profiler.Provider.
func (p pluginOrNone) Devices(ctx context.Context) ([]profiler.Device, error) {
	if !p.hasPlugin() {
		if !p.hasDriver() {
			return nil, profiler.ErrNoDriver
		}
		return nil, fmt.Errorf("%w: %s is missing beside this program, and an NVIDIA driver is loaded", profiler.ErrCannotAsk, rpc.BinaryName)
	}
	return p.plugin.Devices(ctx)
}

// readLimit is how long the plugin may take to read all GPUs at once, each of which has 5 s.
const readLimit = 8 * time.Second

// gpuReadings reads GPUs through the plugin, which is started at the first reading.
func gpuReadings() profiler.Reader {
	return rpc.Client{Path: os.Getenv(pluginVariable), CallLimit: readLimit, Logger: slog.New(slog.DiscardHandler)}.Reader()
}

// driverLoaded looks for the traces of an NVIDIA driver: of Linux, and of WSL.
func driverLoaded() bool {
	for _, path := range []string{"/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
