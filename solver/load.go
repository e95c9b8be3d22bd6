package solver

import "math"

// load is what a batch, cut in a certain way, puts on a device.
type load struct {
	times     []float64 // of ONE unit, forward and backward by class
	keeping   []float64 // the same of a unit that keeps its activations
	peakBytes int64     // of computing, the gathered unit included
	keptBytes int64     // between forward and backward
	hostBytes int64     // in host memory
}

// cut is a number of microbatches of one size.
type cut struct{ size, count int }

// cutsOf groups equal neighbours.
func cutsOf(micro []int) []cut {
	var cuts []cut
	for _, m := range micro {
		if n := len(cuts); n > 0 && cuts[n-1].size == m {
			cuts[n-1].count++
			continue
		}
		cuts = append(cuts, cut{m, 1})
	}
	return cuts
}

// loadOf is the load of a local batch under layered accumulation, with one
// policy for all units.
func (m *model) loadOf(k *kind, batch int, cuts []cut, policy Policy) load {
	return m.loadWith(k, batch, cuts, policy, nil)
}

// loadWith is the same if the last units of some classes, so many of each, keep
// their activations whatever the policy.
func (m *model) loadWith(k *kind, batch int, cuts []cut, policy Policy, kept map[string]int) load {
	l := load{times: make([]float64, 0, 2*len(k.costs))}
	peak, bytes, host := 0.0, 0.0, 0.0
	over := m.problem.MicrobatchOverheadMs
	for i, u := range m.problem.Units {
		c := &k.costs[i]
		parts, recompute := cuts, policy != Keep
		if u.WholeBatch || batch == 0 {
			parts = []cut{{batch, 1}}
		}
		if u.WholeBatch {
			recompute = false
		}
		forward, backward, again, pieces := 0.0, 0.0, 0.0, 0
		for _, part := range parts {
			n := float64(part.count)
			f := c.ForwardMs.At(part.size)
			w := c.BackwardMs.At(part.size)
			forward += n * f
			backward += n * w
			if recompute {
				again += n * f
			}
			pieces += part.count
			peak = max(peak, c.peak(policy).At(part.size))
		}
		forward += float64(pieces-1) * over.Forward
		backward += float64(pieces-1) * over.Backward
		l.keeping = append(l.keeping, forward, backward)
		backward += again
		keeping := float64(kept[u.Class])
		units := float64(u.Count) - keeping
		bytes += units*c.kept[policy.index()]*float64(batch) + keeping*c.kept[Keep.index()]*float64(batch)
		if policy == Offload {
			copied := float64(batch) * c.OffloadMsPerSample
			forward, backward = max(forward, copied), max(backward, copied)
			host += units * max(0, c.kept[Recompute.index()]-c.kept[Offload.index()]) * float64(batch)
		}
		l.times = append(l.times, forward, backward)
	}
	l.peakBytes, l.keptBytes, l.hostBytes = wholeBytes(peak), wholeBytes(bytes), wholeBytes(host)
	return l
}

// wholeBytes rounds up and stays far from overflow.
func wholeBytes(v float64) int64 { return int64(math.Ceil(min(v, 1<<60))) }

// room is what the load leaves for state; below 0 it does not fit.
func (k *kind) room(l load) int64 {
	if k.device.HostMemoryBytes > 0 && l.hostBytes > k.device.HostMemoryBytes {
		return -1
	}
	return k.device.UsableMemoryBytes - k.device.ReservedBytes - l.peakBytes - l.keptBytes
}
