package profiler

import (
	"fmt"
	"math"
	"sort"
	"strconv"
)

// Limits beyond which a number is a slip and no measurement.
const (
	maxParameters     = 1e15
	maxUnits          = 1_000_000
	maxBytesPerParam  = 4096
	maxMilliseconds   = 1e9 // eleven days for one unit
	maxRaggedFactor   = 1000
	maxMemoryBytes    = 1 << 50
	maxProfileDevices = 100_000
	maxClockMHz       = 100_000
)

// Validate checks a profile and reports everything that is wrong with it.
func (p Profile) Validate() error {
	var problems ProblemList
	if p.Version != ProfileVersion {
		problems.Add("version", "is %d, must be %d", p.Version, ProfileVersion)
	}
	p.check(&problems)
	return problems.Err("profile")
}

func (p Profile) check(l *ProblemList) {
	p.Model.check(l)
	classes := p.Model.classes()
	if len(p.Devices) == 0 {
		l.Add("devices", "is empty: a profile needs at least one device")
	}
	if len(p.Devices) > maxProfileDevices {
		l.Add("devices", "has %d entries, which cannot be right", len(p.Devices))
	}
	ranks, uuids := map[int]int{}, map[string]int{}
	for i, d := range p.Devices {
		path := fmt.Sprintf("devices[%d]", i)
		d.check(l, path, classes)
		if j, twice := ranks[d.Rank]; twice {
			l.Add(path+".rank", "%d is also the rank of devices[%d]", d.Rank, j)
		} else {
			ranks[d.Rank] = i
		}
		if j, twice := uuids[d.UUID]; twice && d.UUID != "" {
			l.Add(path+".uuid", "%s is also devices[%d]", d.UUID, j)
		} else {
			uuids[d.UUID] = i
		}
		if d.Rank >= len(p.Devices) {
			l.Add(path+".rank", "is %d, and the ranks of %d listed are 0 to %d", d.Rank, len(p.Devices), len(p.Devices)-1)
		}
	}
	for _, class := range classes {
		if c, ok := p.Collectives[class]; !ok {
			l.Add("collectives."+class, "is missing")
		} else {
			inRange(l, "collectives."+class+".all_gather_ms", c.AllGatherMs, 0, maxMilliseconds)
			inRange(l, "collectives."+class+".reduce_scatter_ms", c.ReduceScatterMs, 0, maxMilliseconds)
		}
	}
	inRange(l, "ragged_factor", p.RaggedFactor, 1, maxRaggedFactor)
	inRange(l, "fixed_ms", p.FixedMs, 0, maxMilliseconds)
	inRange(l, "microbatch_overhead_ms.forward", p.MicrobatchOverheadMs.Forward, 0, maxMilliseconds)
	inRange(l, "microbatch_overhead_ms.backward", p.MicrobatchOverheadMs.Backward, 0, maxMilliseconds)
	if p.Script != nil {
		inRange(l, "script.batch_per_rank", float64(p.Script.BatchPerRank), 0, math.MaxInt32)
		inRange(l, "script.samples", float64(p.Script.Samples), 0, maxParameters)
	}
}

// classes lists the unit classes in the file's order, each once.
func (m Model) classes() []string {
	var out []string
	seen := map[string]bool{}
	for _, u := range m.Units {
		if u.Class != "" && !seen[u.Class] {
			out, seen[u.Class] = append(out, u.Class), true
		}
	}
	return out
}

func (m Model) check(l *ProblemList) {
	inRange(l, "model.parameters", float64(m.Parameters), 1, maxParameters)
	inRange(l, "model.trainable_parameters", float64(m.TrainableParameters), 0, maxParameters)
	if s := m.StateBytesPerParameter; s <= 0 {
		l.Add("model.state_bytes_per_parameter", "is %v, must be above 0", s)
	}
	inRange(l, "model.state_bytes_per_parameter", m.StateBytesPerParameter, 0, maxBytesPerParam)
	if m.StateBytesPerParameter > 0 { // else a bound that is wrong itself says nothing
		inRange(l, "model.gradient_bytes_per_parameter", m.GradientBytesPerParameter, 0, m.StateBytesPerParameter)
	}
	inRange(l, "model.step_bytes_per_parameter", m.StepBytesPerParameter, 0, maxBytesPerParam)
	if len(m.Units) == 0 {
		l.Add("model.units", "is empty: a model needs at least one unit")
	}
	seen := map[string]int{}
	for i, u := range m.Units {
		path := fmt.Sprintf("model.units[%d]", i)
		if u.Class == "" {
			l.Add(path+".class", "is empty")
		} else if j, twice := seen[u.Class]; twice {
			l.Add(path+".class", "%q is also model.units[%d]", u.Class, j)
		}
		seen[u.Class] = i
		inRange(l, path+".count", float64(u.Count), 1, maxUnits)
		inRange(l, path+".parameters", float64(u.Parameters), 0, maxParameters)
		inRange(l, path+".received_bytes", float64(u.ReceivedBytes), 0, maxMemoryBytes)
		inRange(l, path+".overlap_loss", u.OverlapLoss, 0, 1)
		if n := u.Trainable(); u.Parameters >= 0 && (n < 0 || n > u.Parameters) {
			l.Add(path+".trainable_parameters", "is %d, must be 0 to %d (the unit's parameters)", n, u.Parameters)
		}
	}
}

func (d ProfileDevice) check(l *ProblemList, path string, classes []string) {
	inRange(l, path+".rank", float64(d.Rank), 0, maxProfileDevices)
	if d.Kind != KindCUDA && d.Kind != KindCPU {
		l.Add(path+".kind", "is %q, must be cuda or cpu", d.Kind)
	}
	if d.Name == "" {
		l.Add(path+".name", "is empty")
	}
	inRange(l, path+".memory_bytes", float64(d.MemoryBytes), 1, maxMemoryBytes)
	inRange(l, path+".usable_memory_bytes", float64(d.UsableMemoryBytes), 0, maxMemoryBytes)
	inRange(l, path+".reserved_bytes", float64(d.ReservedBytes), 0, maxMemoryBytes)
	if d.ReservedBytes >= 0 {
		inRange(l, path+".outside_bytes", float64(d.OutsideBytes), 0, float64(d.ReservedBytes))
	}
	inRange(l, path+".clock_mhz", float64(d.ClockMHz), 0, maxClockMHz)
	inRange(l, path+".max_clock_mhz", float64(d.MaxClockMHz), 0, maxClockMHz)
	inRange(l, path+".host_memory_bytes", float64(d.HostMemoryBytes), 0, maxMemoryBytes)
	if d.MemoryBytes > 0 && d.UsableMemoryBytes > d.MemoryBytes {
		l.Add(path+".usable_memory_bytes", "is %d, more than the device's memory_bytes %d", d.UsableMemoryBytes, d.MemoryBytes)
	}
	for _, class := range classes {
		at := path + ".costs." + class
		c, ok := d.Costs[class]
		if !ok {
			l.Add(at, "is missing")
			continue
		}
		c.ForwardMs.check(l, at+".forward_ms", maxMilliseconds)
		c.BackwardMs.check(l, at+".backward_ms", maxMilliseconds)
		c.MemoryBytes.check(l, at+".memory_bytes", maxMemoryBytes)
		if c.FirstMemoryBytes != nil {
			c.FirstMemoryBytes.check(l, at+".first_memory_bytes", maxMemoryBytes)
		}
		inRange(l, at+".last_unit_bytes", float64(c.LastUnitBytes), 0, maxMemoryBytes)
		inRange(l, at+".offload_ms_per_sample", c.OffloadMsPerSample, 0, maxMilliseconds)
		for _, policy := range sortedKeys(c.KeptBytesPerSample) {
			kept := at + ".kept_bytes_per_sample." + policy
			inRange(l, kept, c.KeptBytesPerSample[policy], 0, maxMemoryBytes)
		}
	}
}

func (c Cost) check(l *ProblemList, path string, most float64) {
	last := 0.0
	for i, p := range c.Points {
		at := fmt.Sprintf("%s.points[%d]", path, i)
		if m := p[0]; !(m > last) || m != math.Trunc(m) || m > math.MaxInt32 {
			l.Add(at, "has microbatch %v: they must be whole numbers from 1 on that grow (before it: %v)", m, last)
		}
		last = p[0]
		inRange(l, at, p[1], 0, most)
	}
	inRange(l, path+".tail.slope", c.Tail.Slope, 0, most)
	inRange(l, path+".tail.intercept", c.Tail.Intercept, -most, most)
	first := last + 1
	if v := c.Tail.Slope*first + c.Tail.Intercept; v < 0 {
		l.Add(path+".tail", "gives %.4g for a microbatch of %v; a cost is never negative", v, first)
	}
}

func inRange(l *ProblemList, path string, v, least, most float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		l.Add(path, "is %v, which is not a number", v)
	} else if v < least || v > most {
		l.Add(path, "is %v, must be %s to %s", v, plainly(least), plainly(most))
	}
}

// plainly is a bound without an exponent.
func plainly(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
