package estimate

import (
	"fmt"

	"github.com/cephalorun/cephalorun/profiler"
)

// FromProfile is the profile of a measured model on another cluster. The costs
// of a GPU that was measured are taken as they are; those of another are those
// of the measured one that is closest in age, times the ratio of their speeds. The collectives follow from the cluster's links, unless the profile
// says that they cost nothing.
func FromProfile(c Cluster, measured profiler.Profile) (profiler.Profile, []string, error) {
	p := measured
	p.Fingerprint, p.Script = "", nil
	p.Devices, p.Collectives = nil, map[string]profiler.Collective{}
	width, free := widthOf(measured), true
	for _, class := range measured.Collectives {
		free = free && class.AllGatherMs == 0 && class.ReduceScatterMs == 0
	}
	for _, u := range measured.Model.Units {
		p.Collectives[u.Class] = profiler.Collective{}
		if !free {
			p.Collectives[u.Class] = profiler.Collective{
				AllGatherMs: c.gatherMs(float64(u.Parameters) * width), ReduceScatterMs: c.gatherMs(float64(u.Parameters) * gradientWidth)}
		}
	}
	var notes []string
	seen := map[string]bool{}
	for rank, at := range c.places() {
		d, note, err := Like(measured, at.gpu)
		if err != nil {
			return profiler.Profile{}, nil, err
		}
		if note != "" && !seen[note] {
			seen[note] = true
			notes = append(notes, note)
		}
		d.Rank, d.Node, d.UUID = rank, fmt.Sprintf("%s.%d", at.nodeName, at.node), ""
		if at.memoryBytes > d.MemoryBytes {
			return profiler.Profile{}, nil, fmt.Errorf("%w: node %s: memory is %s, and %s has %s: give at most that, or leave it out",
				profiler.ErrInvalid, at.nodeName, profiler.FormatSize(at.memoryBytes), at.gpu, profiler.FormatSize(d.MemoryBytes))
		}
		if at.memoryBytes > 0 {
			d.UsableMemoryBytes = at.memoryBytes
			d.ReservedBytes = min(d.ReservedBytes, d.UsableMemoryBytes)
		}
		p.Devices = append(p.Devices, d)
	}
	return p, notes, nil
}

func widthOf(p profiler.Profile) float64 {
	if t := profiler.DType(p.Model.DType); t == profiler.Float16 || t == profiler.BFloat16 {
		return 2
	}
	return 4
}

// Like is a device of a name for a measured model, and how it came about.
func Like(measured profiler.Profile, name string) (profiler.ProfileDevice, string, error) {
	for _, d := range measured.Devices {
		if plain(d.Name) == plain(name) {
			return d, "", nil
		}
	}
	wanted, known := Find(name)
	for _, d := range measured.Devices {
		gpu, ok := Find(d.Name)
		if ok && known && gpu.Name == wanted.Name {
			return d, "", nil
		}
	}
	if !known {
		return profiler.ProfileDevice{}, "", fmt.Errorf("%w: there is no GPU %q in the profile or in the catalogue", profiler.ErrInvalid, name)
	}
	from, reference, ok := nearest(measured, wanted)
	if !ok {
		return profiler.ProfileDevice{}, "", fmt.Errorf("%w: %s was not measured, and of the devices that were none is in the catalogue, so there is nothing to scale from", profiler.ErrInvalid, wanted.Name)
	}
	t := profiler.DType(measured.Model.DType)
	if t == "" {
		t = profiler.Float32
	}
	ratio := wanted.Slower(reference, t)
	out := device(0, place{gpu: name}, wanted)
	out.ReservedBytes = from.ReservedBytes
	out.Costs = map[string]profiler.UnitCosts{}
	for class, c := range from.Costs {
		c.ForwardMs, c.BackwardMs = c.ForwardMs.Times(ratio), c.BackwardMs.Times(ratio)
		out.Costs[class] = c
	}
	return out, fmt.Sprintf("%s was not measured: %s's times, multiplied by %.2f", wanted.Name, from.Name, ratio), nil
}

// nearest is the measured device that is closest in age to a GPU.
func nearest(measured profiler.Profile, to GPU) (profiler.ProfileDevice, GPU, bool) {
	age := func(g GPU) int { return 10*g.Capability[0] + g.Capability[1] }
	var best profiler.ProfileDevice
	var reference GPU
	found := false
	for _, d := range measured.Devices {
		gpu, ok := Find(d.Name)
		if ok && (!found || abs(age(gpu)-age(to)) < abs(age(reference)-age(to))) {
			best, reference, found = d, gpu, true
		}
	}
	return best, reference, found
}

func abs(n int) int { return max(n, -n) }
