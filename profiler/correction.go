package profiler

import "maps"

// Correction is how a run differed from what its profile predicted.
type Correction struct {
	Version int `json:"version"`
	// TimeRatio is the measured time of a step by the uncorrected prediction.
	TimeRatio float64 `json:"time_ratio"`
	// MemoryBytes is by how much the peak of a device was over its prediction, by UUID.
	MemoryBytes map[string]int64 `json:"memory_bytes,omitempty"`
	// Steps are those that the ratio is the median of.
	Steps int `json:"steps"`
}

// Corrected is the profile with all times scaled, and with more memory reserved where more
// was needed. Nothing of p is changed.
func (p Profile) Corrected(c Correction) Profile {
	out := p
	out.FixedMs *= c.TimeRatio
	out.MicrobatchOverheadMs.Forward *= c.TimeRatio
	out.MicrobatchOverheadMs.Backward *= c.TimeRatio
	out.Collectives = maps.Clone(p.Collectives)
	for class, one := range out.Collectives {
		one.AllGatherMs *= c.TimeRatio
		one.ReduceScatterMs *= c.TimeRatio
		out.Collectives[class] = one
	}
	out.Devices = nil
	for _, d := range p.Devices {
		d.ReservedBytes += c.MemoryBytes[d.UUID]
		d.Costs = d.scaled(c.TimeRatio)
		out.Devices = append(out.Devices, d)
	}
	return out
}

// Drifted is the profile with the times of devices multiplied by factors, by UUID. Nothing
// of p is changed.
func (p Profile) Drifted(factors map[string]float64) Profile {
	if len(factors) == 0 {
		return p
	}
	out := p
	out.Devices = nil
	for _, d := range p.Devices {
		if factor, known := factors[d.UUID]; known {
			d.Costs = d.scaled(factor)
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

// scaled are the device's costs with their times multiplied.
func (d ProfileDevice) scaled(factor float64) map[string]UnitCosts {
	out := maps.Clone(d.Costs)
	for class, costs := range out {
		costs.ForwardMs = costs.ForwardMs.times(factor)
		costs.BackwardMs = costs.BackwardMs.times(factor)
		out[class] = costs
	}
	return out
}

// times is the cost multiplied by a factor.
func (c Cost) times(factor float64) Cost {
	out := c
	out.Points = nil
	for _, point := range c.Points {
		out.Points = append(out.Points, [2]float64{point[0], point[1] * factor})
	}
	out.Tail.Slope *= factor
	out.Tail.Intercept *= factor
	return out
}
