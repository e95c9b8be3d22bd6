package profiler

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Unknown stands for a number that could not be asked or that the device does
// not support. It is never 0, which would be an answer.
const Unknown = -1

// Kind says what sort of device it is.
type Kind string

// The kinds of device a rank can run on.
const (
	KindCUDA Kind = "cuda"
	KindCPU  Kind = "cpu"
)

// Device is one thing that a rank can train on. Byte counts are Unknown (-1)
// when the device does not tell them.
type Device struct {
	// UUID names the device: GPU-…, MIG-…, CPU-… or virtual-….
	UUID string `json:"uuid"`
	// GPUUUID is the physical GPU underneath: equal to UUID for a whole GPU, the
	// parent's for a MIG slice or a virtual part, empty for a processor.
	GPUUUID string `json:"gpu_uuid,omitempty"`
	// Name is the model ("Tesla T4"), or the name from a devices file ("big").
	Name string `json:"name"`
	// Model is the hardware's name where Name is somebody's own; else empty.
	Model string `json:"model,omitempty"`
	Kind  Kind   `json:"kind"`
	Node  string `json:"node,omitempty"`
	// Index is the place in the provider's own order (NVML: PCI bus order). For
	// reading only.
	Index    int    `json:"index"`
	PCIBusID string `json:"pci_bus_id,omitempty"`

	// MemoryBytes is the total, FreeMemoryBytes what nobody holds now.
	MemoryBytes     int64 `json:"memory_bytes"`
	FreeMemoryBytes int64 `json:"free_memory_bytes"`
	// UsedByOthersBytes is what is in use and is not ours.
	UsedByOthersBytes int64 `json:"used_by_others_bytes"`
	// ReserveBytes is held back on purpose: for a screen, or under WSL.
	ReserveBytes int64 `json:"reserve_bytes"`
	// UsableMemoryBytes is what a plan may use: free less the reserve.
	UsableMemoryBytes int64 `json:"usable_memory_bytes"`

	// MemorySource says what limits the memory of a processor: "host" or
	// "cgroup"; empty elsewhere.
	MemorySource string `json:"memory_source,omitempty"`

	// Capability is the CUDA compute capability; {0,0} on a processor or when
	// unknown.
	Capability Capability `json:"capability"`
	// DTypes are the types the device computes in natively, best first.
	DTypes []DType `json:"dtypes,omitempty"`
	Link   Link    `json:"link"`

	// Cores and MaxClockMHz say roughly how fast a GPU is, which is how CUDA
	// orders cards unless told otherwise; 0 or less is unknown.
	Cores       int `json:"cores,omitempty"`
	MaxClockMHz int `json:"max_clock_mhz,omitempty"`

	// Threads is the number of processor threads for a cpu device.
	Threads int `json:"threads,omitempty"`
	// Slowdown (1 or more, 0 read as 1) and SMPercent (1 to 100, 0 = no limit)
	// make a virtual device slower than what it runs on.
	Slowdown  float64 `json:"slowdown,omitempty"`
	SMPercent int     `json:"sm_percent,omitempty"`
	Virtual   bool    `json:"virtual,omitempty"`
	MIG       bool    `json:"mig,omitempty"`
	// Driver is the version of the driver that answered.
	Driver string `json:"driver,omitempty"`
	// Display says that a screen hangs on the device.
	Display bool `json:"display,omitempty"`
	// UnifiedMemory says that device and host share one memory.
	UnifiedMemory bool `json:"unified_memory,omitempty"`
	// Problem is empty for a device that can be used; else one clause saying
	// why not ("does not answer within 5s").
	Problem string `json:"problem,omitempty"`
}

// Provider lists the devices of one source.
//
// The context bounds the whole call. A device that is there but cannot be
// used is listed with Problem set; an error means that the source itself could
// not be asked (ErrCannotAsk) or that there is none (ErrNoDriver).
type Provider interface {
	Devices(ctx context.Context) ([]Device, error)
}

// Usable splits a listing into devices to plan with and devices left out.
func Usable(devices []Device) (usable, leftOut []Device) {
	for _, d := range devices {
		if d.Problem == "" {
			usable = append(usable, d)
		} else {
			leftOut = append(leftOut, d)
		}
	}
	return usable, leftOut
}

// UsableBytes is what a plan may use of a device: what is free less what is
// held back; Unknown when it is not known what is free.
func UsableBytes(free, reserve int64) int64 {
	if free < 0 {
		return Unknown
	}
	return max(0, free-reserve)
}

// ShareHostMemory fills in devices that have no memory of their own: what the
// host has free is what they have, and the same bytes must not be planned twice.
func ShareHostMemory(devices []Device, hostTotal, hostFree int64) []Device {
	out := append([]Device(nil), devices...)
	for i, d := range out {
		if d.UnifiedMemory && d.MemoryBytes < 0 {
			out[i].MemoryBytes, out[i].FreeMemoryBytes = hostTotal, hostFree
			out[i].UsableMemoryBytes = UsableBytes(hostFree, d.ReserveBytes)
			out[i].UsedByOthersBytes = max(0, hostTotal-hostFree)
		}
	}
	return out
}

// Label is how messages name the device: "GPU 1 Tesla T4", "cpu device slow".
func (d Device) Label() string {
	switch {
	case d.Virtual:
		return fmt.Sprintf("%s device %s", d.Kind, d.Name)
	case d.Kind == KindCUDA:
		return strings.TrimSpace(fmt.Sprintf("GPU %d %s", d.Index, d.Name))
	default:
		return strings.TrimSpace("CPU " + d.Name)
	}
}

// MarshalJSON writes unknown byte counts as null.
func (d Device) MarshalJSON() ([]byte, error) {
	type plain Device
	return json.Marshal(struct {
		plain
		Memory *int64 `json:"memory_bytes"`
		Free   *int64 `json:"free_memory_bytes"`
		Others *int64 `json:"used_by_others_bytes"`
		Usable *int64 `json:"usable_memory_bytes"`
	}{plain(d), known(d.MemoryBytes), known(d.FreeMemoryBytes), known(d.UsedByOthersBytes), known(d.UsableMemoryBytes)})
}

// UnmarshalJSON reads null or a missing byte count as Unknown.
func (d *Device) UnmarshalJSON(data []byte) error {
	type plain Device
	in := struct {
		*plain
		Memory *int64 `json:"memory_bytes"`
		Free   *int64 `json:"free_memory_bytes"`
		Others *int64 `json:"used_by_others_bytes"`
		Usable *int64 `json:"usable_memory_bytes"`
	}{plain: (*plain)(d)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	d.MemoryBytes, d.FreeMemoryBytes = orUnknown(in.Memory), orUnknown(in.Free)
	d.UsedByOthersBytes, d.UsableMemoryBytes = orUnknown(in.Others), orUnknown(in.Usable)
	return nil
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func orUnknown(n *int64) int64 {
	if n == nil {
		return Unknown
	}
	return *n
}
