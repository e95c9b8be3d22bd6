package visible

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cephalorun/cephalorun/profiler"
)

// PCIBusID is the value of CUDA_DEVICE_ORDER under which CUDA counts cards as
// NVML does.
const PCIBusID = "PCI_BUS_ID"

// order brings whole GPUs (slices of one GPU together) into the order in which
// CUDA counts them. Without certain the cards are mixed and the order is
// CUDA's own "fastest first", which is only estimated here.
func order(devices []profiler.Device, cudaDeviceOrder string) (ordered []profiler.Device, certain bool) {
	ordered = slices.Clone(devices)
	slices.SortStableFunc(ordered, func(a, b profiler.Device) int { return cmp.Compare(a.Index, b.Index) })
	if cudaDeviceOrder == PCIBusID || !mixed(ordered) {
		return ordered, true
	}
	slices.SortStableFunc(ordered, func(a, b profiler.Device) int {
		return cmp.Or(-cmp.Compare(speed(a), speed(b)), -cmp.Compare(version(a), version(b)), cmp.Compare(a.Index, b.Index))
	})
	return ordered, false
}

// speed is an estimate: cores times clock, 0 when either is unknown.
func speed(d profiler.Device) int { return max(d.Cores, 0) * max(d.MaxClockMHz, 0) }

func version(d profiler.Device) int { return 100*d.Capability[0] + d.Capability[1] }

// mixed reports whether there is more than one model of card.
func mixed(devices []profiler.Device) bool {
	for _, d := range devices {
		if model(d) != model(devices[0]) {
			return true
		}
	}
	return false
}

func model(d profiler.Device) string { return cmp.Or(d.Model, d.Name) }

// gpus groups a CUDA order by physical GPU: CUDA's index counts these.
func gpus(ordered []profiler.Device) [][]profiler.Device {
	var out [][]profiler.Device
	place := map[string]int{}
	for _, d := range ordered {
		key := cmp.Or(d.GPUUUID, d.UUID, fmt.Sprintf("index %d", d.Index))
		if i, ok := place[key]; ok {
			out[i] = append(out[i], d)
			continue
		}
		place[key] = len(out)
		out = append(out, []profiler.Device{d})
	}
	return out
}
