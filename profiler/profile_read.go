package profiler

import (
	"encoding/json"
	"fmt"
)

// ReadProfile reads and checks a profile v1 file. What is wrong is reported
// all at once, with field paths, as a ProblemsError.
func ReadProfile(path string) (Profile, error) {
	data, err := ReadInput(path, MostInputBytes)
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	return ParseProfile(path, data)
}

// ParseProfile is ReadProfile for the content of a file; source names it in
// messages.
func ParseProfile(source string, data []byte) (Profile, error) {
	return parseProfile(source, data, func(Profile, *ProblemList) {})
}

func parseProfile(source string, data []byte, more func(Profile, *ProblemList)) (Profile, error) {
	var problems ProblemList
	root := OpenJSON(data, &problems)
	if root.rest == nil {
		return Profile{}, problems.Err(source)
	}
	given := root.Has("version")
	if version := root.Whole("version", true); given && version != ProfileVersion {
		// Of another version nothing more can be said.
		problems.Add("version", "is %d; this cephalorun reads version %d only: measure again, or use the release that wrote it", version, ProfileVersion)
		return Profile{}, problems.Err(source)
	}
	p := readProfile(root)
	p.Version = ProfileVersion
	p.check(&problems)
	more(p, &problems)
	return p, problems.Err(source)
}

func readProfile(f *Fields) Profile {
	p := Profile{
		Fingerprint:  f.Text("fingerprint", false),
		RaggedFactor: f.Number("ragged_factor", true),
		FixedMs:      f.Number("fixed_ms", false),
		Collectives:  map[string]Collective{},
	}
	if o := f.Object("model", true); o != nil {
		p.Model = readModel(o)
	}
	f.List("devices", true, func(path string, raw json.RawMessage) {
		p.Devices = append(p.Devices, readDevice(NewFields(path, raw, f.problems)))
	})
	if all := f.Object("collectives", true); all != nil {
		all.Each(func(class string, raw json.RawMessage) {
			o := NewFields(all.Path(class), raw, f.problems)
			c := Collective{AllGatherMs: o.Number("all_gather_ms", true), ReduceScatterMs: o.Number("reduce_scatter_ms", true)}
			c.Extra = o.Extra()
			p.Collectives[class] = c
		})
	}
	if o := f.Object("microbatch_overhead_ms", true); o != nil {
		p.MicrobatchOverheadMs = Overhead{Forward: o.Number("forward", true), Backward: o.Number("backward", true)}
		p.MicrobatchOverheadMs.Extra = o.Extra()
	}
	if o := f.Object("script", false); o != nil {
		p.Script = readScript(o)
	}
	if o := f.Object("measured", false); o != nil {
		p.Measured = &Measured{Torch: o.Text("torch", false), Driver: o.Text("driver", false), Time: o.Text("time", false), Spread: o.Numbers("spread", false)}
		p.Measured.Extra = o.Extra()
	}
	p.Extra = f.Extra()
	return p
}

func readScript(o *Fields) *Script {
	s := &Script{BatchPerRank: int(o.Whole("batch_per_rank", false)), Data: o.Text("data", false), Samples: o.Whole("samples", false)}
	s.Extra = o.Extra()
	return s
}

func readModel(o *Fields) Model {
	m := Model{
		Name:                   o.Text("name", true),
		Parameters:             o.Whole("parameters", true),
		TrainableParameters:    o.Whole("trainable_parameters", false),
		StateBytesPerParameter: o.Number("state_bytes_per_parameter", true),

		GradientBytesPerParameter: o.Number("gradient_bytes_per_parameter", false),
		StepBytesPerParameter:     o.Number("step_bytes_per_parameter", false),
		Optimizer:                 o.Text("optimizer", false),
		DType:                     o.Text("dtype", false),
	}
	o.List("units", true, func(path string, raw json.RawMessage) {
		m.Units = append(m.Units, readUnit(NewFields(path, raw, o.problems)))
	})
	m.Extra = o.Extra()
	return m
}

func readUnit(o *Fields) Unit {
	u := Unit{
		Class:      o.Text("class", true),
		Count:      int(o.Whole("count", true)),
		Parameters: o.Whole("parameters", true),
		WholeBatch: o.Truth("whole_batch", false), Held: o.Truth("held", false),
		OverlapLoss: o.Number("overlap_loss", false), ReceivedBytes: o.Whole("received_bytes", false),

		WholeBatchReason: o.Text("whole_batch_reason", false),
	}
	o.Into("inside", false, "a list of texts", &u.Inside)
	if raw, ok := o.Take("trainable_parameters", false); ok {
		n, err := wholeNumber(raw)
		if err != nil {
			o.problems.Add(o.Path("trainable_parameters"), "%v", err)
		}
		u.TrainableParameters = &n
	}
	u.Extra = o.Extra()
	return u
}

func readDevice(o *Fields) ProfileDevice {
	d := ProfileDevice{
		Rank:              int(o.Whole("rank", true)),
		Node:              o.Text("node", false),
		Kind:              Kind(o.Text("kind", true)),
		Name:              o.Text("name", true),
		UUID:              o.Text("uuid", false),
		MemoryBytes:       o.Whole("memory_bytes", true),
		UsableMemoryBytes: o.Whole("usable_memory_bytes", true),
		ReservedBytes:     o.Whole("reserved_bytes", true),
		OutsideBytes:      o.Whole("outside_bytes", false),
		HostMemoryBytes:   o.Whole("host_memory_bytes", false),
		Costs:             map[string]UnitCosts{},
	}
	d.ClockMHz, d.MaxClockMHz = int(o.Whole("clock_mhz", false)), int(o.Whole("max_clock_mhz", false))
	o.Into("throttled", false, "a list of texts", &d.Throttled)
	var capability []int
	if o.Into("capability", false, "two whole numbers", &capability) {
		if len(capability) == 2 {
			d.Capability = &Capability{capability[0], capability[1]}
		} else {
			o.problems.Add(o.Path("capability"), "must be two whole numbers, has %d", len(capability))
		}
	}
	var bf16 bool
	if o.Into("bf16", false, "true or false", &bf16) {
		d.BF16 = &bf16
	}
	if all := o.Object("costs", true); all != nil {
		all.Each(func(class string, raw json.RawMessage) {
			d.Costs[class] = readUnitCosts(NewFields(all.Path(class), raw, o.problems))
		})
	}
	d.Extra = o.Extra()
	return d
}

func readUnitCosts(o *Fields) UnitCosts {
	c := UnitCosts{
		ForwardMs:          readCost(o.Object("forward_ms", true)),
		BackwardMs:         readCost(o.Object("backward_ms", true)),
		MemoryBytes:        readCost(o.Object("memory_bytes", true)),
		LastUnitBytes:      o.Whole("last_unit_bytes", false),
		KeptBytesPerSample: o.Numbers("kept_bytes_per_sample", false),
		OffloadMsPerSample: o.Number("offload_ms_per_sample", false),
	}
	if first := o.Object("first_memory_bytes", false); first != nil {
		cost := readCost(first)
		c.FirstMemoryBytes = &cost
	}
	c.Extra = o.Extra()
	return c
}

func readCost(o *Fields) Cost {
	if o == nil {
		return Cost{}
	}
	c := Cost{Points: [][2]float64{}}
	o.List("points", true, func(path string, raw json.RawMessage) {
		pair, err := ParsePair(raw)
		if err != nil {
			o.Problem(path, err)
			return
		}
		c.Points = append(c.Points, pair)
	})
	if t := o.Object("tail", true); t != nil {
		c.Tail = Tail{Slope: t.Number("slope", true), Intercept: t.Number("intercept", true)}
		c.Tail.Extra = t.Extra()
	}
	c.Extra = o.Extra()
	return c
}
