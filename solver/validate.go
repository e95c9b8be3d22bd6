package solver

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// MostSamples is the largest global batch, and more than any rank takes.
const MostSamples = 1 << 17

// Bounds on what a problem may say; beyond them a number is a mistake.
const (
	maxBatch   = MostSamples
	maxDevices = 1 << 14
	maxTimeMs  = 1e12
	maxBytes   = 1e16
	maxClasses = 16
)

// Validate reports every fault of the problem with the path of its field.
func (p Problem) Validate() error {
	var f faults
	if p.GlobalBatch < 1 || p.GlobalBatch > maxBatch {
		f.add("global_batch: want 1 to %d, got %d", maxBatch, p.GlobalBatch)
	}
	if p.UseAll && p.GlobalBatch < len(p.Devices) {
		f.add("global_batch: %d samples cannot give each of %d devices one", p.GlobalBatch, len(p.Devices))
	}
	f.number("ragged_factor", p.RaggedFactor, 1e6)
	f.number("microbatch_overhead_ms.forward", p.MicrobatchOverheadMs.Forward, maxTimeMs)
	f.number("microbatch_overhead_ms.backward", p.MicrobatchOverheadMs.Backward, maxTimeMs)
	f.number("state_bytes_per_parameter", p.StateBytesPerParameter, 1e6)
	f.number("frozen_bytes_per_parameter", p.FrozenBytesPerParameter, 1e6)
	f.number("fixed_ms", p.FixedMs, maxTimeMs)
	if p.Shares != "" && p.Shares != EvenShares && p.Shares != RaggedShares {
		f.add("shares: want %q, %q or nothing, got %q", EvenShares, RaggedShares, p.Shares)
	}
	for i, policy := range p.Policies {
		if !knownPolicy(policy) {
			f.add("policies[%d]: want %q, %q or %q, got %q", i, Keep, Recompute, Offload, policy)
		}
	}
	p.validateUnits(&f)
	p.validateDevices(&f)
	p.validateFixedBatches(&f)
	p.validateLinks(&f)
	return f.join("problem")
}

func (p Problem) validateUnits(f *faults) {
	if len(p.Units) == 0 || len(p.Units) > maxClasses {
		f.add("units: want 1 to %d classes, got %d", maxClasses, len(p.Units))
	}
	seen := map[string]bool{}
	trainable := false
	for i, u := range p.Units {
		at := fmt.Sprintf("units[%d]", i)
		if u.Class == "" {
			f.add("%s.class: is empty", at)
		}
		if seen[u.Class] {
			f.add("%s.class: %q is there twice", at, u.Class)
		}
		seen[u.Class] = true
		if u.Count < 1 || u.Count > 1<<20 {
			f.add("%s.count: want 1 to %d, got %d", at, 1<<20, u.Count)
		}
		if u.Parameters < 0 || float64(u.Parameters) > maxBytes {
			f.add("%s.parameters: want 0 to %g, got %d", at, float64(maxBytes), u.Parameters)
		}
		if u.TrainableParameters < 0 || u.TrainableParameters > u.Parameters {
			f.add("%s.trainable_parameters: want 0 to the %d parameters, got %d", at, u.Parameters, u.TrainableParameters)
		}
		f.bytes(at+".received_bytes", u.ReceivedBytes)
		f.number(at+".overlap_loss", u.OverlapLoss, 1)
		trainable = trainable || u.TrainableParameters > 0
	}
	if len(p.Units) > 0 && !trainable {
		f.add("units: no class has trainable_parameters, so there is nothing to train")
	}
	for _, class := range sortedKeys(p.Collectives) {
		c := p.Collectives[class]
		f.number("collectives."+class+".all_gather_ms", c.AllGatherMs, maxTimeMs)
		f.number("collectives."+class+".reduce_scatter_ms", c.ReduceScatterMs, maxTimeMs)
	}
}

func (p Problem) validateDevices(f *faults) {
	if len(p.Devices) == 0 || len(p.Devices) > maxDevices {
		f.add("devices: want 1 to %d, got %d", maxDevices, len(p.Devices))
	}
	for i, d := range p.Devices {
		at := fmt.Sprintf("devices[%d]", i)
		if d.Rank != i {
			f.add("%s.rank: want %d, got %d", at, i, d.Rank)
		}
		f.bytes(at+".usable_memory_bytes", d.UsableMemoryBytes)
		f.bytes(at+".reserved_bytes", d.ReservedBytes)
		f.number(at+".outside_bytes", float64(d.OutsideBytes), float64(d.ReservedBytes))
		f.bytes(at+".host_memory_bytes", d.HostMemoryBytes)
		for _, u := range p.Units {
			c, ok := d.Costs[u.Class]
			if !ok {
				f.add("%s.costs.%s: missing", at, u.Class)
				continue
			}
			c.validate(at+".costs."+u.Class, f)
		}
	}
}

func (c ClassCost) validate(at string, f *faults) {
	f.cost(at+".forward_ms", c.ForwardMs, maxTimeMs)
	f.cost(at+".backward_ms", c.BackwardMs, maxTimeMs)
	f.cost(at+".memory_bytes", c.MemoryBytes, maxBytes)
	f.cost(at+".first_memory_bytes", c.FirstMemoryBytes, maxBytes)
	f.number(at+".last_unit_bytes", c.LastUnitBytes, maxBytes)
	for _, policy := range sortedKeys(c.KeptBytesPerSample) {
		f.number(at+".kept_bytes_per_sample."+string(policy), c.KeptBytesPerSample[policy], maxBytes)
	}
	f.number(at+".offload_ms_per_sample", c.OffloadMsPerSample, maxTimeMs)
}

func (p Problem) validateFixedBatches(f *faults) {
	if p.FixedBatches == nil {
		return
	}
	if len(p.FixedBatches) != len(p.Devices) {
		f.add("fixed_batches: want one for each of %d devices, got %d", len(p.Devices), len(p.FixedBatches))
		return // the sum of another number says nothing
	}
	sum := 0
	for i, b := range p.FixedBatches {
		if b < 0 || b > maxBatch {
			f.add("fixed_batches[%d]: want 0 to %d, got %d", i, maxBatch, b)
			return
		}
		sum += b
	}
	if sum != p.GlobalBatch {
		f.add("fixed_batches: %v sum to %d, want global_batch %d", p.FixedBatches, sum, p.GlobalBatch)
	}
	if p.UseAll && slices.Contains(p.FixedBatches, 0) {
		f.add("fixed_batches: a rank has 0 samples, and every device is to be used")
	}
}

func (p Problem) validateLinks(f *faults) {
	if p.Links == nil {
		return
	}
	if len(p.Links.NodeOf) != len(p.Devices) {
		f.add("links.node_of: want one for each of the %d devices, got %d", len(p.Devices), len(p.Links.NodeOf))
	}
	for i, n := range p.Links.NodeOf {
		if n < 0 || n >= len(p.Links.Inside) {
			f.add("links.node_of[%d]: want one of the %d nodes, got %d", i, len(p.Links.Inside), n)
		}
	}
	for i, v := range p.Links.Inside {
		f.number(fmt.Sprintf("links.inside[%d]", i), v, maxBytes)
	}
	f.number("links.between", p.Links.Between, maxBytes)
}

// faults collects what is wrong.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

func (f *faults) number(path string, v, most float64) {
	if math.IsNaN(v) || v < 0 || v > most {
		f.add("%s: want 0 to %g, got %v", path, most, v)
	}
}

func (f *faults) bytes(path string, v int64) {
	if v < 0 || float64(v) > maxBytes {
		f.add("%s: want 0 to %g, got %d", path, float64(maxBytes), v)
	}
}

func (f *faults) cost(path string, c Cost, most float64) {
	last := -1.0
	for i, pt := range c.Points {
		if !(pt[0] > last) || pt[0] > maxBatch || pt[0] != math.Trunc(pt[0]) {
			f.add("%s.points[%d]: want whole samples in ascending order up to %d, got %v", path, i, maxBatch, pt[0])
		}
		last = pt[0]
		if math.IsNaN(pt[1]) || pt[1] < 0 || pt[1] > most {
			f.add("%s.points[%d]: want 0 to %g, got %v", path, i, most, pt[1])
		}
	}
	for _, v := range [2]float64{c.Tail.Slope, c.Tail.Intercept} {
		if math.IsNaN(v) || math.Abs(v) > most {
			f.add("%s.tail: want finite numbers up to %g, got slope %v and intercept %v", path, most, c.Tail.Slope, c.Tail.Intercept)
			return
		}
	}
}

// join makes one error of all faults, nil if there are none.
func (f faults) join(what string) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", what, errors.Join(f...))
}
