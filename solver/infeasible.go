package solver

import "fmt"

// lacking explains why one rank does not fit what it was given.
func (m *model) lacking(rank int, missing int64, r RankLoad, a RankAllocation) *InfeasibleError {
	d := m.problem.Devices[rank]
	detail := fmt.Sprintf("%d samples with %s activations need %s of computing and %s of activations beside %s of state and %s reserved, and %s are usable",
		a.Batch, a.Activations, gib(r.PeakBytes), gib(r.KeptBytes), gib(r.StateBytes), gib(r.ReservedBytes), gib(r.UsableBytes))
	if d.HostMemoryBytes > 0 && r.HostBytes > d.HostMemoryBytes && -r.HeadroomBytes() < missing {
		detail = fmt.Sprintf("%d samples offload %s into host memory, and %s are allowed", a.Batch, gib(r.HostBytes), gib(d.HostMemoryBytes))
	}
	return &InfeasibleError{
		Rank: rank, Device: label(d), MissingBytes: missing, Detail: detail,
		Remedy: fmt.Sprintf("give it fewer samples, smaller microbatches or less state, or %s more memory", gib(missing)),
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
	for low, high := 1, m.problem.GlobalBatch-1; low <= high; {
		mid := (low + high) / 2
		if p, ok := m.frugalPicks(kinds, shares, mid); ok {
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

// nearest finds the device that lacks the fewest bytes to take all the samples
// that the picks leave over.
func (m *model) nearest(kinds []*frugal, shares Shares, picks [][]int) *InfeasibleError {
	left, ppm := m.problem.GlobalBatch, 0
	for k, list := range picks {
		for _, b := range list {
			left -= b
			ppm += max(0, m.ppmIn(kinds[k].room(b)))
		}
	}
	left = max(left, 0)
	best := &InfeasibleError{MissingBytes: -1}
	for k, list := range picks {
		f := kinds[k]
		state, without := m.stateOf(f.k.even), m.stateOf(f.k.even)-f.room(list[0])
		if shares == RaggedShares {
			state = m.stateOf(max(0, TotalPPM-(ppm-max(0, m.ppmIn(f.room(list[0]))))))
			without = -1
		}
		missing := state - f.room(list[0]+left)
		if without > 0 { // it cannot even hold its share, whoever takes the samples
			missing = without
		}
		if best.MissingBytes < 0 || without > 0 || missing < best.MissingBytes {
			batch := list[0] + left
			if without > 0 {
				batch = list[0]
			}
			best = &InfeasibleError{Rank: f.k.ranks[0], Device: label(f.k.device), MissingBytes: missing,
				Detail: fmt.Sprintf("with %d samples it has %s left for %s of state", batch, gib(max(0, f.room(batch))), gib(state))}
		}
		if without > 0 {
			break
		}
	}
	best.Remedy = fmt.Sprintf("%s more usable memory there would make it fit", gib(best.MissingBytes))
	return best
}

// infeasibleByHand names the device that the manual batches do not fit.
func (m *model) infeasibleByHand(shares Shares) *InfeasibleError {
	kinds := m.frugal()
	worst := &InfeasibleError{}
	ppm := 0
	for k, f := range kinds {
		room := f.room(f.k.fixed)
		if shares == EvenShares {
			room -= m.stateOf(m.kinds[k].even)
		}
		ppm += len(f.k.ranks) * max(0, m.ppmIn(room))
		if missing := -room; missing > worst.MissingBytes {
			worst = &InfeasibleError{Rank: f.k.ranks[0], Device: label(f.k.device), MissingBytes: missing,
				Detail: fmt.Sprintf("its %d samples do not fit, however they are cut", f.k.fixed),
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
	return &InfeasibleError{Rank: tight.k.ranks[0], Device: label(tight.k.device), MissingBytes: m.stateOf(TotalPPM - ppm),
		Detail: fmt.Sprintf("with these batches all devices together hold only %.1f %% of the state, and its %d samples leave the least room", float64(ppm)/1e4, tight.k.fixed),
		Remedy: "give it fewer samples, or any device so much more memory"}
}
