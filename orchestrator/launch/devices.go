package launch

import (
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/profiler"
)

// DevicesVersion is the version of devices.json.
const DevicesVersion = 1

// DevicesFile is devices.json: which device each rank has.
type DevicesFile struct {
	Version int     `json:"version"`
	Devices []Entry `json:"devices"`
}

// Entry is the device of one rank.
type Entry struct {
	Rank    int           `json:"rank"`
	Name    string        `json:"name"`
	Kind    profiler.Kind `json:"kind"`
	UUID    string        `json:"uuid"`
	GPUUUID string        `json:"gpu_uuid,omitempty"`
	Index   int           `json:"index"`
	// MemoryBytes is the limit to enforce; 0 is none but the device's own.
	MemoryBytes int64   `json:"memory_bytes"`
	Threads     int     `json:"threads"`
	Slowdown    float64 `json:"slowdown"`
	SMPercent   int     `json:"sm_percent,omitempty"`
	Virtual     bool    `json:"virtual"`
	// Alone says that the worker sees this device only, as number 0.
	Alone bool `json:"alone,omitempty"`
}

// Entries gives rank i devices[i]. threads is for ranks whose device does not say.
func Entries(devices []profiler.Device, threads int) DevicesFile {
	file := DevicesFile{Version: DevicesVersion, Devices: []Entry{}}
	for rank, d := range devices {
		e := Entry{
			Rank: rank, Name: d.Name, Kind: d.Kind, UUID: d.UUID, GPUUUID: d.GPUUUID, Index: d.Index,
			Threads: d.Threads, Slowdown: max(1, d.Slowdown), SMPercent: d.SMPercent, Virtual: d.Virtual,
			// A process can see one slice of a GPU only, and a part of a GPU has no
			// name of its own for CUDA.
			Alone: d.Kind == profiler.KindCUDA && (d.Virtual || d.MIG),
		}
		if d.MIG {
			e.GPUUUID = d.UUID
		}
		if d.Virtual {
			e.MemoryBytes = max(0, d.MemoryBytes)
		}
		if e.Threads == 0 || d.Kind == profiler.KindCPU && !d.Virtual {
			e.Threads = threads
		}
		file.Devices = append(file.Devices, e)
	}
	return file
}

// Write writes devices.json.
func (f DevicesFile) Write(path string) error { return rundir.WriteJSON(path, f) }
