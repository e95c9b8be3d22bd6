package solver

import (
	"fmt"
	"slices"
)

// lacking explains why one rank does not fit what it was given.
func (m *model) lacking(rank int, missing int64, r RankLoad, a RankAllocation) *InfeasibleError {
	d := m.problem.Devices[rank]
	detail := fmt.Sprintf("%s with %s activations need %s of computing and %s of activations beside %s of state and %s reserved, and %s are usable",
		m.samples(a.Batch), a.Activations, amount(r.PeakBytes), amount(r.KeptBytes), amount(r.StateBytes), amount(r.ReservedBytes), amount(r.UsableBytes))
	if step := m.problem.memoryFor(r.StateBytes - r.MostStateBytes); step >= missing {
		detail = fmt.Sprintf("the optimizer's step takes %s beside %s of state, and %s are usable",
			amount(m.problem.memoryFor(r.StateBytes)-r.StateBytes), amount(r.StateBytes), amount(r.UsableBytes))
	}
	if d.HostMemoryBytes > 0 && r.HostBytes > d.HostMemoryBytes && -r.HeadroomBytes() < missing {
		detail = fmt.Sprintf("%s offload %s into host memory, and %s are allowed", count(a.Batch, "sample"), amount(r.HostBytes), amount(d.HostMemoryBytes))
	}
	return &InfeasibleError{
		Rank: rank, Device: label(d), MissingBytes: missing, Detail: detail,
		Remedy: fmt.Sprintf("give it fewer samples, smaller microbatches or less state, or %s more memory", amount(missing)),
	}
}

// infeasible explains why no plan fits: the device that could make it fit with
// the fewest bytes more, and the largest batch that would fit.
func (m *model) infeasible() *InfeasibleError {
	shares := RaggedShares
	if m.problem.Shares == EvenShares {
		shares = EvenShares
	}
	if m.problem.FixedBatches != nil {
		return m.infeasibleByHand(shares)
	}
	kinds := m.frugal()
	fits, picks := 0, [][]int(nil)
	for low, high := m.leastBatch(), m.problem.GlobalBatch-1; low <= high; {
		mid := (low + high) / 2
		if p, ok := m.fitting(kinds, shares, mid); ok {
			fits, picks, low = mid, p, mid+1
		} else {
			high = mid - 1
		}
	}
	if picks == nil {
		for _, f := range kinds {
			first, _ := m.batchRange(f.k, 0)
			list := make([]int, len(f.k.ranks))
			for i := range list {
				list[i] = first
			}
			picks = append(picks, list)
		}
	}
	e := m.nearest(kinds, shares, picks)
	if fits > 0 {
		e.Remedy += fmt.Sprintf(", or a global batch of at most %d", fits)
	}
	if shares == EvenShares {
		e.Remedy += ", or ragged shares"
	}
	return e
}

// leastBatch is the smallest global batch that can be asked for.
func (m *model) leastBatch() int {
	sum := 0
	for _, k := range m.kinds {
		sum += k.least * len(k.ranks)
	}
	return max(1, sum)
}

// nearest finds the device that lacks the fewest bytes to take all the samples
// that the picks leave over.
func (m *model) nearest(kinds []*frugal, shares Shares, picks [][]int) *InfeasibleError {
	left, ppm := m.problem.GlobalBatch, 0
	for k, list := range picks {
		for _, b := range list {
			left -= b
			ppm += max(0, kinds[k].share(b))
		}
	}
	left = max(left, 0)
	best, lacking := &InfeasibleError{MissingBytes: -1}, 0
	for k, list := range picks {
		f := kinds[k]
		batch, state := list[0]+left, part(m.stateBytes, f.k.even)
		arriving := int64(0) // beyond what even shares bring
		must := int64(0)     // what it needs whoever takes the samples that are left
		if shares == RaggedShares {
			share := max(0, TotalPPM-(ppm-max(0, f.share(list[0]))))
			state = part(m.stateBytes, share)
			arriving = m.transit(m.stateBytes, m.window(m.every()), share)
		} else {
			must = state
		}
		alone := min(f.room(list[0]), f.k.mostState) < must
		if alone {
			batch, state, arriving = list[0], must, 0
			lacking += len(list)
		}
		missing := max(state+arriving-f.room(batch), m.problem.memoryFor(state-f.k.mostState))
		if best.MissingBytes < 0 || lacking == 0 && missing < best.MissingBytes || alone && lacking == len(list) {
			best = &InfeasibleError{Rank: f.k.ranks[0], Device: label(f.k.device), MissingBytes: missing,
				Detail: m.leaves(f, batch, state)}
		}
	}
	best.MissingBytes = m.fewest(best.Rank, best.MissingBytes, shares)
	best.Remedy = fmt.Sprintf("%s more usable memory there would make it fit", amount(best.MissingBytes))
	if lacking > 1 {
		best.Remedy = fmt.Sprintf("it needs %s more usable memory; other devices that are too small as well: %d", amount(best.MissingBytes), lacking-1)
	}
	return best
}

// leaves says what a batch leaves for state on a device.
func (m *model) leaves(f *frugal, batch int, state int64) string {
	room := f.room(batch)
	if room >= 0 {
		return fmt.Sprintf("with %s it has %s left for %s of state", m.samples(batch), amount(room), amount(state))
	}
	d := f.k.device
	if batch == 0 && !m.problem.ShownOne && d.ReservedBytes > d.UsableMemoryBytes {
		return fmt.Sprintf("%s are reserved there, and %s are usable", amount(d.ReservedBytes), amount(d.UsableMemoryBytes))
	}
	return fmt.Sprintf("with %s it lacks %s even without any of the state", m.samples(batch), amount(-room))
}

// doNotFit says that about a batch by hand.
func (m *model) doNotFit(batch int) string {
	switch {
	case batch > 1:
		return fmt.Sprintf("its %d samples do not fit, however they are cut", batch)
	case batch == 1:
		return "its sample does not fit"
	case m.problem.ShownOne:
		return "the sample that its script is shown, though it has none of the step, does not fit"
	}
	return "it does not fit even without samples"
}

// samples of a rank in words.
func (m *model) samples(batch int) string {
	if batch == 0 && m.problem.ShownOne {
		return "one sample of no weight, as its script is shown,"
	}
	return count(batch, "sample")
}

// fewest is the smallest number of bytes that, added to a device, makes it all fit, found
// from a number that may be enough; that one if nothing does.
func (m *model) fewest(rank int, enough int64, shares Shares) int64 {
	fits := func(bytes int64) bool {
		p := m.problem
		p.Devices = slices.Clone(p.Devices)
		p.Devices[rank].UsableMemoryBytes += bytes
		more, err := newModel(p)
		if err != nil {
			return false
		}
		_, ok := more.fitting(more.frugal(), shares, p.GlobalBatch)
		return ok
	}
	low, high := int64(0), enough
	if !fits(high) {
		// It may hold all of the state, with all that arrives for it.
		low, high = enough, enough+m.problem.memoryFor(m.stateBytes)+int64(len(m.kindOf))*m.window(m.every())
		if !fits(high) {
			return enough
		}
	}
	for low+1 < high {
		if mid := low + (high-low)/2; fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// infeasibleByHand names the device that the manual batches do not fit.
func (m *model) infeasibleByHand(shares Shares) *InfeasibleError {
	kinds := m.frugal()
	worst := &InfeasibleError{}
	ppm := 0
	for k, f := range kinds {
		room, state := f.room(f.k.fixed), int64(0)
		if shares == EvenShares {
			state = part(m.stateBytes, m.kinds[k].even)
		}
		ppm += len(f.k.ranks) * max(0, f.share(f.k.fixed))
		if missing := max(state-room, m.problem.memoryFor(state-f.k.mostState)); missing > worst.MissingBytes {
			worst = &InfeasibleError{Rank: f.k.ranks[0], Device: label(f.k.device), MissingBytes: missing,
				Detail: m.doNotFit(f.k.fixed),
				Remedy: "give it fewer samples or more memory"}
		}
	}
	if worst.MissingBytes > 0 {
		return worst
	}
	tight := kinds[0]
	for _, f := range kinds {
		if f.room(f.k.fixed) < tight.room(tight.k.fixed) {
			tight = f
		}
	}
	return &InfeasibleError{Rank: tight.k.ranks[0], Device: label(tight.k.device),
		MissingBytes: m.fewest(tight.k.ranks[0],
			m.problem.memoryFor(part(m.stateBytes, TotalPPM-ppm))+m.transit(m.stateBytes, m.window(m.every()), TotalPPM-ppm)+int64(len(m.kindOf))*m.window(m.every()), shares),
		Detail: fmt.Sprintf("with these batches all devices together hold only %.1f %% of the state, and its %s leave the least room", float64(ppm)/1e4, m.samples(tight.k.fixed)),
		Remedy: "give it fewer samples, or so much more memory"}
}
