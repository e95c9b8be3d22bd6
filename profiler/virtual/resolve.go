package virtual

import (
	"context"
	"fmt"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
)

// Resolve lays the file over the real devices. They are given in the order in
// which the user counts them (visible.Selection.Devices for GPUs; a slice of a
// GPU counts as a device). The result is in the file's order.
func (f File) Resolve(real []profiler.Device) ([]profiler.Device, error) {
	var problems profiler.ProblemList
	given := map[string]int64{} // bytes handed out so far, by UUID underneath
	var out []profiler.Device
	for i, s := range f.Devices {
		path := fmt.Sprintf("devices[%d]", i)
		under, field, problem := s.find(real)
		if problem != "" {
			problems.Add(path+field, "%s", problem)
			continue
		}
		given[under.UUID] += s.MemoryBytes
		if problem := overdrawn(under, given[under.UUID]); problem != "" {
			problems.Add(path+".memory", "%s", problem)
		}
		out = append(out, s.device(under))
	}
	return out, problems.Err(f.Source)
}

// find is the real device under a spec, or which field is wrong and how.
func (s Spec) find(real []profiler.Device) (device profiler.Device, field, problem string) {
	var same []profiler.Device
	for _, d := range real {
		if d.Kind == s.Kind {
			same = append(same, d)
		}
	}
	switch {
	case s.Kind == profiler.KindCPU && len(same) == 0:
		return device, ".kind", "there is no cpu device here"
	case s.Kind == profiler.KindCPU:
		return same[0], "", ""
	case s.UUID != "":
		device, problem = byUUID(same, s.UUID)
		field = ".uuid"
	default:
		field = ".index"
		if s.Index >= len(same) {
			return device, field, fmt.Sprintf("there is no GPU %d: %d can be used here", s.Index, len(same))
		}
		device = same[s.Index]
	}
	if problem == "" && device.Problem != "" {
		problem = fmt.Sprintf("%s cannot be used: it %s", device.Label(), device.Problem)
	}
	return device, field, problem
}

func byUUID(devices []profiler.Device, uuid string) (profiler.Device, string) {
	var found []profiler.Device
	for _, d := range devices {
		if strings.HasPrefix(strings.ToLower(d.UUID), strings.ToLower(uuid)) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 1:
		return found[0], ""
	case 0:
		return profiler.Device{}, fmt.Sprintf("%s matches no GPU here", uuid)
	default:
		return profiler.Device{}, fmt.Sprintf("%s matches %d devices: write more of the UUID", uuid, len(found))
	}
}

// overdrawn says why a GPU cannot give out so many bytes. Host memory is left
// to the launcher's own check: there a limit is a ceiling, not a claim.
func overdrawn(d profiler.Device, bytes int64) string {
	switch {
	case d.Kind != profiler.KindCUDA:
		return ""
	case d.MemoryBytes >= 0 && bytes > d.MemoryBytes:
		return fmt.Sprintf("with this device %s hands out %s, but has %s", d.Label(), exact(bytes), exact(d.MemoryBytes))
	case d.FreeMemoryBytes >= 0 && bytes > d.FreeMemoryBytes:
		return fmt.Sprintf("with this device %s hands out %s, but only %s are free now: lower it or end what uses the rest", d.Label(), exact(bytes), exact(d.FreeMemoryBytes))
	default:
		return ""
	}
}

func exact(n int64) string { return fmt.Sprintf("%s (%d bytes)", profiler.FormatSize(n), n) }

func (s Spec) device(under profiler.Device) profiler.Device {
	d := under
	d.Name, d.Model, d.Virtual = s.Name, under.Name, true
	d.UUID = "virtual-" + s.Name
	d.GPUUUID = ""
	if s.Kind == profiler.KindCUDA {
		// A worker must be able to open it: the slice if it is one.
		d.GPUUUID = under.UUID
	}
	d.MemoryBytes, d.FreeMemoryBytes, d.UsableMemoryBytes = s.MemoryBytes, s.MemoryBytes, s.MemoryBytes
	d.UsedByOthersBytes, d.ReserveBytes = 0, 0
	d.Slowdown, d.SMPercent = s.Slowdown, s.SMPercent
	d.Threads = s.Threads
	return d
}

// Provider lists a file's devices; Under lists the real ones, in the user's
// order.
type Provider struct {
	File  File
	Under profiler.Provider
}

var _ profiler.Provider = Provider{}

// Devices implements profiler.Provider.
func (p Provider) Devices(ctx context.Context) ([]profiler.Device, error) {
	real, err := p.Under.Devices(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the devices under %s: %w", p.File.Source, err)
	}
	return p.File.Resolve(real)
}
