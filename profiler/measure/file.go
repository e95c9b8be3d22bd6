package measure

import (
	"encoding/json"
	"fmt"

	"github.com/cephalorun/cephalorun/profiler"
)

// Measurement is what one rank measured.
type Measurement struct {
	// Source names the file in messages.
	Source string
	Rank   int
	Device Device
	Torch  string
	Script profiler.Script
	// Model holds the units too.
	Model profiler.Model

	// ReservedBytes is what the rank holds apart from units: the CUDA context,
	// communication buffers. OutsideBytes of them no tensor can have.
	ReservedBytes        int64
	OutsideBytes         int64
	FixedMs              float64
	RaggedFactor         float64
	MicrobatchOverheadMs profiler.Overhead
	// Costs, Collectives and Spread are by unit class.
	Costs       map[string]Points
	Collectives map[string]profiler.Collective
	Spread      map[string]float64
}

// Device is the device as the worker saw it. Byte counts are 0 when not said.
type Device struct {
	Name        string
	UUID        string
	Capability  *profiler.Capability
	BF16        *bool
	TotalBytes  int64
	UsableBytes int64
	// HostBytes is what the rank may offload to the host.
	HostBytes int64
}

// Points are measured values [microbatch, value] of one unit class.
type Points struct {
	ForwardMs        [][2]float64
	BackwardMs       [][2]float64
	MemoryBytes      [][2]float64
	FirstMemoryBytes [][2]float64 // empty when not said
	LastUnitBytes    int64
	// LeastMemoryBytes is what a unit takes however small the microbatch: while its
	// reduction is issued.
	LeastMemoryBytes   float64
	KeptBytesPerSample map[string]float64
	OffloadMsPerSample float64
}

// Read reads one measurement file. Fields that it does not know are ignored;
// everything missing or wrong is reported at once.
func Read(path string) (Measurement, error) {
	data, err := profiler.ReadFile(path, profiler.MostInputBytes)
	if err != nil {
		return Measurement{}, fmt.Errorf("read measurement: %w", err)
	}
	return Parse(path, data)
}

// ReadAll reads the files of all ranks of a profiling run.
func ReadAll(paths []string) ([]Measurement, error) {
	var out []Measurement
	for _, path := range paths {
		m, err := Read(path)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Parse is Read for the content of a file.
func Parse(source string, data []byte) (Measurement, error) {
	var problems profiler.ProblemList
	root := profiler.OpenJSON(data, &problems)
	m := Measurement{
		Source:        source,
		Rank:          int(root.Whole("rank", true)),
		Torch:         root.Text("torch", false),
		ReservedBytes: root.Whole("reserved_bytes", true),
		OutsideBytes:  root.Whole("outside_bytes", false),
		FixedMs:       root.Number("fixed_ms", false),
		RaggedFactor:  1,
		Costs:         map[string]Points{},
		Collectives:   map[string]profiler.Collective{},
	}
	if root.Has("ragged_factor") {
		m.RaggedFactor = root.Number("ragged_factor", true)
	}
	if o := root.Object("device", true); o != nil {
		m.Device = readDevice(o)
	}
	if o := root.Object("script", false); o != nil {
		m.Script = profiler.Script{BatchPerRank: int(o.Whole("batch_per_rank", false)), Data: o.Text("data", false), Samples: o.Whole("samples", false)}
	}
	if o := root.Object("model", true); o != nil {
		m.Model = readModel(o)
	}
	root.List("units", true, func(path string, raw json.RawMessage) {
		m.Model.Units = append(m.Model.Units, readUnit(profiler.NewFields(path, raw, &problems)))
	})
	if o := root.Object("microbatch_overhead_ms", false); o != nil {
		m.MicrobatchOverheadMs = profiler.Overhead{Forward: o.Number("forward", true), Backward: o.Number("backward", true)}
	}
	if all := root.Object("costs", true); all != nil {
		all.Each(func(class string, raw json.RawMessage) {
			m.Costs[class] = readPoints(profiler.NewFields(all.Path(class), raw, &problems))
		})
	}
	if all := root.Object("collectives", true); all != nil {
		all.Each(func(class string, raw json.RawMessage) {
			o := profiler.NewFields(all.Path(class), raw, &problems)
			m.Collectives[class] = profiler.Collective{AllGatherMs: o.Number("all_gather_ms", true), ReduceScatterMs: o.Number("reduce_scatter_ms", true)}
		})
	}
	m.Spread = root.Numbers("spread", false)
	m.check(&problems)
	return m, problems.Err(source)
}

// check asks that every unit was measured.
func (m Measurement) check(problems *profiler.ProblemList) {
	if m.Rank < 0 {
		problems.Add("rank", "is %d, must be 0 or more", m.Rank)
	}
	if len(m.Model.Units) == 0 {
		problems.Add("units", "is empty: no unit was measured")
	}
	for _, u := range m.Model.Units {
		if _, ok := m.Costs[u.Class]; !ok {
			problems.Add("costs."+u.Class, "is missing")
		}
		if _, ok := m.Collectives[u.Class]; !ok {
			problems.Add("collectives."+u.Class, "is missing")
		}
	}
}

func readDevice(o *profiler.Fields) Device {
	d := Device{
		Name:        o.Text("name", true),
		UUID:        o.Text("uuid", false),
		TotalBytes:  o.Whole("total_bytes", false),
		UsableBytes: o.Whole("usable_bytes", false),
		HostBytes:   o.Whole("host_memory_bytes", false),
	}
	var capability profiler.Capability
	if o.Into("capability", false, "two whole numbers", &capability) {
		d.Capability = &capability
	}
	var bf16 bool
	if o.Into("bf16", false, "true or false", &bf16) {
		d.BF16 = &bf16
	}
	return d
}

func readModel(o *profiler.Fields) profiler.Model {
	return profiler.Model{
		Name:                   o.Text("name", true),
		Parameters:             o.Whole("parameters", true),
		TrainableParameters:    o.Whole("trainable_parameters", false),
		StateBytesPerParameter: o.Number("state_bytes_per_parameter", true),

		GradientBytesPerParameter: o.Number("gradient_bytes_per_parameter", false),
		StepBytesPerParameter:     o.Number("step_bytes_per_parameter", false),
		Optimizer:                 o.Text("optimizer", false),
		DType:                     o.Text("dtype", false),
	}
}

func readUnit(o *profiler.Fields) profiler.Unit {
	u := profiler.Unit{
		Class:      o.Text("class", true),
		Count:      int(o.Whole("count", true)),
		Parameters: o.Whole("parameters", true),
		WholeBatch: o.Truth("whole_batch", false), Held: o.Truth("held", false),
		OverlapLoss: o.Number("overlap_loss", false), ReceivedBytes: o.Whole("received_bytes", false),

		WholeBatchReason: o.Text("whole_batch_reason", false),
	}
	o.Into("inside", false, "a list of texts", &u.Inside)
	if o.Has("trainable_parameters") {
		n := o.Whole("trainable_parameters", true)
		u.TrainableParameters = &n
	}
	return u
}

func readPoints(o *profiler.Fields) Points {
	var p Points
	p.ForwardMs = readPairs(o, "forward_ms")
	p.BackwardMs = readPairs(o, "backward_ms")
	p.MemoryBytes = readPairs(o, "memory_bytes")
	if o.Has("first_memory_bytes") {
		p.FirstMemoryBytes = readPairs(o, "first_memory_bytes")
	}
	p.LeastMemoryBytes = o.Number("least_memory_bytes", false)
	p.LastUnitBytes = o.Whole("last_unit_bytes", false)
	p.KeptBytesPerSample = o.Numbers("kept_bytes_per_sample", false)
	p.OffloadMsPerSample = o.Number("offload_ms_per_sample", false)
	return p
}

func readPairs(o *profiler.Fields, name string) [][2]float64 {
	var out [][2]float64
	o.List(name, true, func(path string, raw json.RawMessage) {
		pair, err := profiler.ParsePair(raw)
		if err != nil {
			o.Problem(path, err)
		}
		out = append(out, pair)
	})
	return out
}
