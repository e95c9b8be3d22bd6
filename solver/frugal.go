package solver

import "math"

// frugal is what a kind of device needs at the very least, whatever the time:
// the cheapest policy and microbatch of every batch.
type frugal struct {
	m     *model
	k     *kind
	peaks map[Policy]*leastPeaks
}

// leastPeaks are the least peaks of the batches asked for so far.
type leastPeaks struct {
	peak []float64 // by batch: of all classes
	best []float64 // by class: of any microbatch
}

func (m *model) frugal() []*frugal {
	var out []*frugal
	for _, k := range m.kinds {
		f := &frugal{m: m, k: k, peaks: map[Policy]*leastPeaks{}}
		for _, policy := range m.policies {
			p := &leastPeaks{}
			for range k.costs {
				p.best = append(p.best, math.Inf(1))
			}
			f.peaks[policy] = p
		}
		out = append(out, f)
	}
	return out
}

// room is the most that a batch can leave for state; below 0 it does not fit.
func (f *frugal) room(batch int) int64 {
	best := int64(math.MinInt64)
	for _, policy := range f.m.policies {
		p := f.peaks[policy]
		for b := len(p.peak); b <= batch; b++ {
			p.peak = append(p.peak, f.leastPeak(p, policy, b))
		}
		kept, host := 0.0, 0.0
		for i, u := range f.m.problem.Units {
			c := f.k.costs[i]
			kept += float64(u.Count) * c.kept[policy.index()] * float64(batch)
			if policy == Offload {
				host += float64(u.Count) * max(0, c.kept[Recompute.index()]-c.kept[Offload.index()]) * float64(batch)
			}
		}
		l := load{peakBytes: wholeBytes(p.peak[batch]), keptBytes: wholeBytes(kept)}
		room := f.k.room(l)
		if over := wholeBytes(host) - f.k.device.HostMemoryBytes; f.k.device.HostMemoryBytes > 0 && over > 0 {
			room = min(room, -over)
		}
		best = max(best, room)
	}
	return best
}

// share is the most of all state that a batch can leave room for, if it is ragged.
func (f *frugal) share(batch int) int {
	m := f.m
	return min(m.shareIn(f.room(batch), m.stateBytes, m.window(m.every())), ppmIn(f.k.mostState, m.stateBytes))
}

// leastPeak is asked for the batches in ascending order.
func (f *frugal) leastPeak(p *leastPeaks, policy Policy, batch int) float64 {
	peak := 0.0
	for i, u := range f.m.problem.Units {
		now := f.k.costs[i].peak(policy).At(batch)
		if !u.WholeBatch && batch > 0 {
			p.best[i] = min(p.best[i], now)
			now = p.best[i]
		}
		peak = max(peak, now)
	}
	return peak
}

// canFit says whether memory alone allows a batch if some classes have even shares. It may say yes where no cut
// of a batch is as frugal as it takes each to be, never no to what fits.
func (m *model) canFit(even classes, total int) bool {
	_, ok := m.frugalPicks(m.frugal(), even, 0, total)
	return ok
}

// fitting are batches by kind and device that memory alone allows with these shares, in
// any division of the classes into even and ragged ones.
func (m *model) fitting(kinds []*frugal, shares Shares, total int) ([][]int, bool) {
	if shares == EvenShares {
		return m.frugalPicks(kinds, m.every(), 0, total)
	}
	if picks, ok := m.frugalPicks(kinds, 0, m.window(m.every()), total); ok || m.window(m.every()) == 0 {
		return picks, ok
	}
	choosers := m.choosers()
	for choice := range 1 << len(choosers) {
		even := classes(0)
		for i, c := range choosers {
			if choice>>i&1 == 1 {
				even |= c
			}
		}
		if picks, ok := m.frugalPicks(kinds, even, m.window(m.every()&^even), total); ok {
			return picks, true
		}
	}
	return nil, false
}

// frugalPicks are batches by kind and device that memory alone allows, if some classes have
// even shares and so much arrives for the others.
func (m *model) frugalPicks(kinds []*frugal, even classes, window int64, total int) ([][]int, bool) {
	sack := &knapsack{total: total}
	ragged := m.every() &^ even
	fixed, collect := m.stateIn(even), m.stateIn(ragged)
	if even != m.every() {
		sack.need = TotalPPM
	}
	for _, f := range kinds {
		g := group{devices: len(f.k.ranks)}
		first, last := m.batchRange(f.k, total)
		for b := first; b <= last; b++ {
			own := part(fixed, f.k.even)
			value := min(m.shareIn(f.room(b)-own, collect, window), ppmIn(f.k.mostState-own, collect))
			if sack.need == 0 {
				value = min(0, value)
			}
			if value >= 0 {
				g.choices = append(g.choices, choice{batch: b, value: value})
			}
		}
		sack.groups = append(sack.groups, g)
	}
	if !sack.solve() {
		return nil, false
	}
	for i, list := range sack.picks {
		for j, c := range list {
			list[j] = sack.groups[i].choices[c].batch
		}
	}
	return sack.picks, true
}

// batchRange is what a device may be given at all.
func (m *model) batchRange(k *kind, total int) (first, last int) {
	if k.fixed >= 0 {
		return k.fixed, k.fixed
	}
	return k.least, total
}
