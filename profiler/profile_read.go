package profiler

import (
	"encoding/json"
	"fmt"
	"os"
)

// ReadProfile reads and checks a profile v1 file. What is wrong is reported
// all at once, with field paths, as a ProblemsError.
func ReadProfile(path string) (Profile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	return ParseProfile(path, data)
}

// ParseProfile is ReadProfile for the content of a file; source names it in
// messages.
func ParseProfile(source string, data []byte) (Profile, error) {
	var problems ProblemList
	if p, bad := syntaxProblem(data); bad {
		problems.Add(p.Path, "%s", p.Message)
		return Profile{}, problems.Err(source)
	}
	root := newFields("", data, &problems)
	version := root.whole("version", true)
	if problems.Empty() && version != ProfileVersion {
		problems.Add("version", "is %d; this cephalorun reads version %d only: measure again, or use the release that wrote it", version, ProfileVersion)
	}
	if !problems.Empty() {
		return Profile{}, problems.Err(source)
	}
	p := readProfile(root)
	p.Version = ProfileVersion
	p.check(&problems)
	return p, problems.Err(source)
}

func readProfile(f *fields) Profile {
	p := Profile{
		Fingerprint:  f.text("fingerprint", false),
		RaggedFactor: f.number("ragged_factor", true),
		FixedMs:      f.number("fixed_ms", false),
		Collectives:  map[string]Collective{},
	}
	if o := f.object("model", true); o != nil {
		p.Model = readModel(o)
	}
	f.list("devices", true, func(path string, raw json.RawMessage) {
		p.Devices = append(p.Devices, readDevice(newFields(path, raw, f.problems)))
	})
	if all := f.object("collectives", true); all != nil {
		all.each(func(class string, raw json.RawMessage) {
			o := newFields(all.join(class), raw, f.problems)
			c := Collective{AllGatherMs: o.number("all_gather_ms", true), ReduceScatterMs: o.number("reduce_scatter_ms", true)}
			c.Extra = o.extra()
			p.Collectives[class] = c
		})
	}
	if o := f.object("microbatch_overhead_ms", true); o != nil {
		p.MicrobatchOverheadMs = Overhead{Forward: o.number("forward", true), Backward: o.number("backward", true)}
		p.MicrobatchOverheadMs.Extra = o.extra()
	}
	if o := f.object("script", false); o != nil {
		p.Script = readScript(o)
	}
	if o := f.object("measured", false); o != nil {
		p.Measured = &Measured{Torch: o.text("torch", false), Driver: o.text("driver", false), Time: o.text("time", false), Spread: o.numbers("spread", false)}
		p.Measured.Extra = o.extra()
	}
	p.Extra = f.extra()
	return p
}

func readScript(o *fields) *Script {
	s := &Script{BatchPerRank: int(o.whole("batch_per_rank", false)), Data: o.text("data", false), Samples: o.whole("samples", false)}
	s.Extra = o.extra()
	return s
}

func readModel(o *fields) Model {
	m := Model{
		Name:                   o.text("name", true),
		Parameters:             o.whole("parameters", true),
		TrainableParameters:    o.whole("trainable_parameters", false),
		StateBytesPerParameter: o.number("state_bytes_per_parameter", true),
		Optimizer:              o.text("optimizer", false),
		DType:                  o.text("dtype", false),
	}
	o.list("units", true, func(path string, raw json.RawMessage) {
		m.Units = append(m.Units, readUnit(newFields(path, raw, o.problems)))
	})
	m.Extra = o.extra()
	return m
}

func readUnit(o *fields) Unit {
	u := Unit{
		Class:      o.text("class", true),
		Count:      int(o.whole("count", true)),
		Parameters: o.whole("parameters", true),
		WholeBatch: o.truth("whole_batch", false),
	}
	if raw, ok := o.take("trainable_parameters", false); ok {
		n, err := wholeNumber(raw)
		if err != nil {
			o.problems.Add(o.join("trainable_parameters"), "%v", err)
		}
		u.TrainableParameters = &n
	}
	u.Extra = o.extra()
	return u
}

func readDevice(o *fields) ProfileDevice {
	d := ProfileDevice{
		Rank:              int(o.whole("rank", true)),
		Node:              o.text("node", false),
		Kind:              Kind(o.text("kind", true)),
		Name:              o.text("name", true),
		UUID:              o.text("uuid", false),
		MemoryBytes:       o.whole("memory_bytes", true),
		UsableMemoryBytes: o.whole("usable_memory_bytes", true),
		ReservedBytes:     o.whole("reserved_bytes", true),
		Costs:             map[string]UnitCosts{},
	}
	var capability []int
	if o.into("capability", false, "two whole numbers", &capability) {
		if len(capability) == 2 {
			d.Capability = &Capability{capability[0], capability[1]}
		} else {
			o.problems.Add(o.join("capability"), "must be two whole numbers, has %d", len(capability))
		}
	}
	var bf16 bool
	if o.into("bf16", false, "true or false", &bf16) {
		d.BF16 = &bf16
	}
	if all := o.object("costs", true); all != nil {
		all.each(func(class string, raw json.RawMessage) {
			d.Costs[class] = readUnitCosts(newFields(all.join(class), raw, o.problems))
		})
	}
	d.Extra = o.extra()
	return d
}

func readUnitCosts(o *fields) UnitCosts {
	c := UnitCosts{
		ForwardMs:          readCost(o.object("forward_ms", true)),
		BackwardMs:         readCost(o.object("backward_ms", true)),
		MemoryBytes:        readCost(o.object("memory_bytes", true)),
		KeptBytesPerSample: o.numbers("kept_bytes_per_sample", false),
	}
	c.Extra = o.extra()
	return c
}

func readCost(o *fields) Cost {
	if o == nil {
		return Cost{}
	}
	c := Cost{Points: [][2]float64{}}
	o.list("points", true, func(path string, raw json.RawMessage) {
		var pair []float64
		if json.Unmarshal(raw, &pair) != nil || len(pair) != 2 {
			o.problems.Add(path, "must be a pair [microbatch, value]")
			return
		}
		c.Points = append(c.Points, [2]float64{pair[0], pair[1]})
	})
	if t := o.object("tail", true); t != nil {
		c.Tail = Tail{Slope: t.number("slope", true), Intercept: t.number("intercept", true)}
		c.Tail.Extra = t.extra()
	}
	c.Extra = o.extra()
	return c
}
