package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

// Run says what the measurements belong to.
type Run struct {
	// Fingerprint is stored in the profile; see profiler/cache.
	Fingerprint string
	// Devices are the devices of the run, by rank. They decide names, nodes and
	// memory; a worker's own numbers stand in for what they do not know.
	Devices []profiler.Device
	Driver  string
	Time    time.Time
}

// Result is a profile and what the user should know about it.
type Result struct {
	Profile profiler.Profile
	Notes   []string
}

// Merge makes one profile of the measurements of all ranks. What does not fit
// together is reported all at once, as a profiler.ProblemsError.
func Merge(run Run, measurements []Measurement) (Result, error) {
	var problems profiler.ProblemList
	ordered := checkRanks(run, measurements, &problems)
	if !problems.Empty() {
		return Result{}, problems.Err("profiling run")
	}
	first := ordered[0]
	for _, m := range ordered[1:] {
		checkAlike(first, m, &problems)
	}
	p := profiler.Profile{
		Version:      profiler.ProfileVersion,
		Fingerprint:  run.Fingerprint,
		Model:        first.Model,
		Collectives:  map[string]profiler.Collective{},
		RaggedFactor: 1,
		Script:       &first.Script,
		Measured:     &profiler.Measured{Torch: first.Torch, Driver: run.Driver, Spread: map[string]float64{}},
	}
	if !run.Time.IsZero() {
		p.Measured.Time = run.Time.UTC().Format(time.RFC3339)
	}
	for _, m := range ordered {
		p.Devices = append(p.Devices, mergeDevice(run.Devices[m.Rank], m, &problems))
		addShared(&p, m)
	}
	if err := problems.Err("profiling run"); err != nil {
		return Result{}, err
	}
	if err := p.Validate(); err != nil {
		return Result{}, fmt.Errorf("merge measurements: %w", err)
	}
	return Result{Profile: p, Notes: append(compareTwins(run.Devices, p), spreadNotes(ordered)...)}, nil
}

// checkRanks asks for one measurement a device and returns them by rank.
func checkRanks(run Run, measurements []Measurement, problems *profiler.ProblemList) []Measurement {
	ordered := slices.Clone(measurements)
	slices.SortStableFunc(ordered, func(a, b Measurement) int { return a.Rank - b.Rank })
	seen := map[int]string{}
	for _, m := range ordered {
		path := fmt.Sprintf("rank %d", m.Rank)
		if other, twice := seen[m.Rank]; twice {
			problems.Add(path+" again", "%s and %s are both of rank %d", other, m.Source, m.Rank)
			continue
		}
		seen[m.Rank] = m.Source
		if m.Rank >= len(run.Devices) {
			problems.Add(path, "was measured (%s), but the run has %d devices", m.Source, len(run.Devices))
		} else if d := run.Devices[m.Rank]; !sameUUID(m.Device.UUID, d) {
			problems.Add(path, "measured %s, but its device is %s (%s)", m.Device.UUID, d.UUID, d.Label())
		}
	}
	for rank, d := range run.Devices {
		if _, ok := seen[rank]; !ok {
			problems.Add(fmt.Sprintf("rank %d", rank), "measured nothing (%s)", d.Label())
		}
	}
	if len(run.Devices) == 0 {
		problems.Add("", "has no devices")
	}
	return ordered
}

// sameUUID allows for workers that do not know their UUID, that name the GPU
// under a virtual part, or that leave the prefix out as torch does.
func sameUUID(measured string, d profiler.Device) bool {
	strip := func(s string) string {
		return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(s, "GPU-"), "MIG-"))
	}
	return measured == "" || d.UUID == "" || strip(measured) == strip(d.UUID) || strip(measured) == strip(d.GPUUUID)
}

// checkAlike asks that two ranks measured the same model the same way.
func checkAlike(first, m Measurement, problems *profiler.ProblemList) {
	path := fmt.Sprintf("rank %d", m.Rank)
	differ := func(what string, a, b any) {
		if a != b {
			problems.Add(path+"."+what, "is %v, but %v on rank %d: all ranks must run the same script", b, a, first.Rank)
		}
	}
	differ("torch", first.Torch, m.Torch)
	differ("model.name", first.Model.Name, m.Model.Name)
	differ("model.parameters", first.Model.Parameters, m.Model.Parameters)
	differ("model.state_bytes_per_parameter", first.Model.StateBytesPerParameter, m.Model.StateBytesPerParameter)
	differ("model.dtype", first.Model.DType, m.Model.DType)
	differ("script.batch_per_rank", first.Script.BatchPerRank, m.Script.BatchPerRank)
	differ("number of unit classes", len(first.Model.Units), len(m.Model.Units))
	for i, u := range m.Model.Units[:min(len(m.Model.Units), len(first.Model.Units))] {
		want := first.Model.Units[i]
		at := fmt.Sprintf("units[%d]", i)
		differ(at+".class", want.Class, u.Class)
		differ(at+".count", want.Count, u.Count)
		differ(at+".parameters", want.Parameters, u.Parameters)
		differ(at+".trainable_parameters", want.Trainable(), u.Trainable())
		differ(at+".whole_batch", want.WholeBatch, u.WholeBatch)
	}
}

func mergeDevice(d profiler.Device, m Measurement, problems *profiler.ProblemList) profiler.ProfileDevice {
	out := profiler.ProfileDevice{
		Rank: m.Rank, Node: d.Node, Kind: d.Kind, Name: firstText(d.Name, m.Device.Name), UUID: firstText(d.UUID, m.Device.UUID),
		BF16:          m.Device.BF16,
		MemoryBytes:   firstKnown(d.MemoryBytes, m.Device.TotalBytes),
		ReservedBytes: m.ReservedBytes, OutsideBytes: m.OutsideBytes, HostMemoryBytes: m.Device.HostBytes,
		Costs: map[string]profiler.UnitCosts{},
	}
	out.UsableMemoryBytes = min(firstKnown(d.UsableMemoryBytes, m.Device.UsableBytes, out.MemoryBytes), out.MemoryBytes)
	if capability := d.Capability; capability.Known() {
		out.Capability = &capability
	} else if m.Device.Capability != nil && m.Device.Capability.Known() {
		out.Capability = m.Device.Capability
	}
	for _, u := range m.Model.Units {
		points := m.Costs[u.Class]
		fit := func(name string, values [][2]float64) profiler.Cost {
			c, err := FitCost(values)
			if err != nil {
				problems.Add(fmt.Sprintf("rank %d.costs.%s.%s", m.Rank, u.Class, name), "%v", err)
			}
			return c
		}
		costs := profiler.UnitCosts{
			ForwardMs:          fit("forward_ms", points.ForwardMs),
			BackwardMs:         fit("backward_ms", points.BackwardMs),
			MemoryBytes:        AtLeast(fit("memory_bytes", points.MemoryBytes), points.LeastMemoryBytes),
			LastUnitBytes:      points.LastUnitBytes,
			KeptBytesPerSample: points.KeptBytesPerSample,
			OffloadMsPerSample: points.OffloadMsPerSample,
		}
		if len(points.FirstMemoryBytes) > 0 {
			first := AtLeast(fit("first_memory_bytes", points.FirstMemoryBytes), points.LeastMemoryBytes)
			costs.FirstMemoryBytes = &first
		}
		out.Costs[u.Class] = costs
	}
	return out
}

// addShared raises what the group does together to this rank's values. Noise
// can make a difference of two times negative or a factor smaller than 1.
func addShared(p *profiler.Profile, m Measurement) {
	for _, u := range m.Model.Units {
		c, now := m.Collectives[u.Class], p.Collectives[u.Class]
		p.Collectives[u.Class] = profiler.Collective{
			AllGatherMs:     max(now.AllGatherMs, c.AllGatherMs),
			ReduceScatterMs: max(now.ReduceScatterMs, c.ReduceScatterMs),
		}
		if s, ok := m.Spread[u.Class]; ok {
			p.Measured.Spread[u.Class] = max(p.Measured.Spread[u.Class], s)
		}
	}
	p.RaggedFactor = max(p.RaggedFactor, m.RaggedFactor)
	p.FixedMs = max(p.FixedMs, m.FixedMs)
	p.MicrobatchOverheadMs.Forward = max(p.MicrobatchOverheadMs.Forward, m.MicrobatchOverheadMs.Forward)
	p.MicrobatchOverheadMs.Backward = max(p.MicrobatchOverheadMs.Backward, m.MicrobatchOverheadMs.Backward)
}

func firstText(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// firstKnown is the first positive count.
func firstKnown(counts ...int64) int64 {
	for _, n := range counts {
		if n > 0 {
			return n
		}
	}
	return 0
}
