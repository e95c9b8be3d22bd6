package nvml

import (
	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/cephalorun/cephalorun/profiler"
)

// throttles are the reasons for a lower clock that cost time; idle and settings of the
// user's own are none.
var throttles = []struct {
	bit  uint64
	name string
}{
	{api.ClocksThrottleReasonSwThermalSlowdown | api.ClocksThrottleReasonHwThermalSlowdown, "heat"},
	{api.ClocksThrottleReasonSwPowerCap, "power"},
	{api.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
}

// read asks for all that changes. A question that the GPU does not support leaves its
// number unknown; that it is lost is the answer to all.
func (c *card) read(index int) (profiler.Reading, api.Return) {
	r := profiler.UnknownReading(index)
	handle, ret := c.provider.NVML.DeviceGetHandleByIndex(index)
	if ret != api.SUCCESS {
		return r, ret
	}
	uuid, ret := handle.GetUUID()
	if ret != api.SUCCESS {
		return r, ret
	}
	r.UUID = uuid
	if name, ret := handle.GetName(); ret == api.SUCCESS {
		r.Name = name
	}
	degrees, ret := handle.GetTemperature(api.TEMPERATURE_GPU)
	switch ret {
	case api.SUCCESS:
		r.TemperatureC = int(degrees)
	case api.ERROR_GPU_IS_LOST, api.ERROR_RESET_REQUIRED:
		return r, ret
	}
	if milliwatts, ret := handle.GetPowerUsage(); ret == api.SUCCESS {
		r.PowerWatts = int(milliwatts / 1000)
	}
	if mhz, ret := handle.GetClockInfo(api.CLOCK_SM); ret == api.SUCCESS {
		r.ClockMHz = int(mhz)
	}
	if mhz, ret := handle.GetMaxClockInfo(api.CLOCK_SM); ret == api.SUCCESS {
		r.MaxClockMHz = int(mhz)
	}
	if use, ret := handle.GetUtilizationRates(); ret == api.SUCCESS {
		r.BusyPercent = int(use.Gpu)
	}
	if n, ret := handle.GetTotalEccErrors(api.MEMORY_ERROR_TYPE_UNCORRECTED, api.VOLATILE_ECC); ret == api.SUCCESS {
		r.ECCErrors = int(n)
	}
	if bits, ret := handle.GetCurrentClocksThrottleReasons(); ret == api.SUCCESS {
		for _, t := range throttles {
			if bits&t.bit != 0 {
				r.Throttled = append(r.Throttled, t.name)
			}
		}
	}
	if total, _, used, ret := c.memoryInfo(handle); ret == api.SUCCESS {
		r.MemoryBytes, r.UsedMemoryBytes = int64(total), int64(used)
	}
	return r, api.SUCCESS
}
