// Package nvml lists CUDA devices through NVML. It needs cgo, so only the
// plugin cephalorun-nvml links it; the supervisor talks to that over
// profiler/rpc.
//
// NVML can hang for ever on a card that fell off the bus. Every question is
// therefore asked in a goroutine of its own with a limit (5 s a device); a
// device that misses it is listed as not answering, with what it had told by
// then, and its goroutine is left behind: nothing can end it but the end of
// the process, which is why this runs in a process of its own.
//
// NVML calls made: Init, Shutdown, SystemGetDriverVersion, DeviceGetCount,
// DeviceGetHandleByIndex, Extensions().LookupSymbol; of a device GetUUID,
// GetName, GetPciInfo, GetCudaComputeCapability, GetMemoryInfo and _v2,
// GetMigMode, GetMaxMigDeviceCount, GetMigDeviceHandleByIndex, GetDisplayActive,
// GetDisplayMode, GetNumGpuCores, GetMaxClockInfo, GetMaxPcieLinkGeneration,
// GetMaxPcieLinkWidth, GetNvLinkState, GetNvLinkVersion, GetP2PStatus and
// GetTopologyCommonAncestor. Newer ones are called only if the installed
// library has them. Processes are never asked for: in a container NVML lists
// pids that mean nothing there.
package nvml
