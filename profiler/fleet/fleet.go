package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/cephalorun/cephalorun/profiler"
)

// Version is the version of the file that is read.
const Version = 1

// Fleet is a source of devices that never touches hardware.
type Fleet struct {
	Source string
	Note   string
	// Fails is nil, or the failure that asking this fleet ends in.
	Fails error
	List  []profiler.Device
}

var _ profiler.Provider = Fleet{}

// Devices implements profiler.Provider.
func (f Fleet) Devices(ctx context.Context) ([]profiler.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", profiler.ErrCannotAsk, context.Cause(ctx))
	}
	if f.Fails != nil {
		return nil, fmt.Errorf("fleet %s: %w", f.Source, f.Fails)
	}
	return append([]profiler.Device(nil), f.List...), nil
}

// Read reads a fleet file.
func Read(path string) (Fleet, error) {
	data, err := profiler.ReadFile(path, profiler.MostInputBytes)
	if err != nil {
		return Fleet{}, fmt.Errorf("read fleet: %w", err)
	}
	return Parse(path, data)
}

// Parse is Read for the content of a file.
func Parse(source string, data []byte) (Fleet, error) {
	var problems profiler.ProblemList
	root := profiler.OpenJSON(data, &problems)
	f := Fleet{Source: source, Note: root.Text("note", false)}
	if v := root.Whole("version", true); problems.Empty() && v != Version {
		problems.Add("version", "is %d, must be %d", v, Version)
	}
	switch fails := root.Text("fails", false); fails {
	case "":
	case "no-driver":
		f.Fails = profiler.ErrNoDriver
	case "cannot-ask":
		f.Fails = profiler.ErrCannotAsk
	default:
		problems.Add("fails", "is %q, must be no-driver or cannot-ask", fails)
	}
	seen := map[string]int{}
	root.List("devices", f.Fails == nil, func(path string, raw json.RawMessage) {
		d := readDevice(profiler.NewFields(path, raw, &problems), len(f.List))
		if j, twice := seen[d.UUID]; twice {
			problems.Add(path+".uuid", "%s is also devices[%d]", d.UUID, j)
		}
		seen[d.UUID] = len(f.List)
		if d.Kind != profiler.KindCUDA && d.Kind != profiler.KindCPU {
			problems.Add(path+".kind", "is %q, must be cuda or cpu", d.Kind)
		}
		if d.FreeMemoryBytes > d.MemoryBytes && d.MemoryBytes >= 0 {
			problems.Add(path+".free_memory_bytes", "is %d, more than memory_bytes %d", d.FreeMemoryBytes, d.MemoryBytes)
		}
		f.List = append(f.List, d)
	})
	root.RefuseRest()
	return f, problems.Err(source)
}

func readDevice(o *profiler.Fields, index int) profiler.Device {
	d := profiler.Device{
		UUID:              o.Text("uuid", true),
		GPUUUID:           o.Text("gpu_uuid", false),
		Name:              o.Text("name", true),
		Kind:              profiler.Kind(o.Text("kind", true)),
		Node:              o.Text("node", false),
		Index:             int(optional(o, "index", int64(index))),
		PCIBusID:          o.Text("pci_bus_id", false),
		MemoryBytes:       optional(o, "memory_bytes", profiler.Unknown),
		FreeMemoryBytes:   optional(o, "free_memory_bytes", profiler.Unknown),
		UsedByOthersBytes: profiler.Unknown,
		ReserveBytes:      optional(o, "reserve_bytes", 0),
		Cores:             int(optional(o, "cores", profiler.Unknown)),
		MaxClockMHz:       int(optional(o, "max_clock_mhz", profiler.Unknown)),
		Threads:           int(optional(o, "threads", 0)),
		MIG:               o.Truth("mig", false),
		Display:           o.Truth("display", false),
		UnifiedMemory:     o.Truth("unified_memory", false),
		Problem:           o.Text("problem", false),
	}
	o.Into("capability", false, "two whole numbers", &d.Capability)
	o.Into("link", false, "a link", &d.Link)
	o.RefuseRest()
	if d.Kind == profiler.KindCUDA {
		d.GPUUUID = cmp.Or(d.GPUUUID, d.UUID)
	}
	d.DTypes = profiler.NativeDTypes(d.Kind, d.Capability)
	d.UsableMemoryBytes = profiler.UsableBytes(d.FreeMemoryBytes, d.ReserveBytes)
	if d.MemoryBytes >= 0 && d.FreeMemoryBytes >= 0 {
		d.UsedByOthersBytes = d.MemoryBytes - d.FreeMemoryBytes
	}
	return d
}

func optional(o *profiler.Fields, name string, otherwise int64) int64 {
	if !o.Has(name) {
		return otherwise
	}
	return o.Whole(name, true)
}
