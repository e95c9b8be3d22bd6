package solver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// whatIfBoxes bounds the search for what a change would bring: plans that are
// only spoken of need not be the best to the last digit.
const whatIfBoxes = 300

// whatIfKinds bounds how many kinds of devices are asked what would be if; the
// most idle come first.
const whatIfKinds = 8

// noticeable is the least gain that is worth a sentence.
const noticeable = 1e-3

// nextBest says what the plan with the other shares costs.
func (m *model) nextBest(shares Shares, nowMs float64) (string, error) {
	if m.problem.Shares != "" {
		return "", nil
	}
	p := m.problem
	p.Shares = EvenShares
	if shares == EvenShares {
		p.Shares = RaggedShares
	}
	ms, err := solveMs(p)
	var none *InfeasibleError
	switch {
	case errors.As(err, &none):
		return fmt.Sprintf("next best: none; with %s shares nothing fits: device %d (%s) lacks %s", p.Shares, none.Rank, none.Device, amount(none.MissingBytes)), nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("next best: with %s shares %s (+%.1f %%)", p.Shares, seconds(ms), max(0, 100*(ms/nowMs-1))), nil
}

// help says which change would shorten the iteration most: memory on the
// devices of a kind that memory limits, or a faster link if the collectives
// bind.
func (m *model) help(a Allocation, ranks []RankExplanation, nowMs float64) (string, error) {
	best, who := nowMs*(1-noticeable), -1
	for _, i := range m.shortOfMemory(ranks) {
		k := m.kinds[i]
		ms, _, err := m.withMemory(k, maxBytes)
		if err != nil {
			return "", err
		}
		if ms < best {
			best, who = ms, i
		}
	}
	if who >= 0 {
		return m.helpMemory(a, m.kinds[who], nowMs, best)
	}
	for _, r := range ranks {
		if r.Limit == LimitLink {
			return m.helpLink(nowMs)
		}
	}
	return "", nil
}

// shortOfMemory are the kinds of which memory limits a device, the most idle
// first.
func (m *model) shortOfMemory(ranks []RankExplanation) []int {
	idle := map[int]float64{}
	for rank, r := range ranks {
		if r.Limit == LimitMemory {
			k := m.kindOf[rank]
			idle[k] = max(idle[k], r.IdleShare)
		}
	}
	kinds := sortedKeys(idle)
	slices.SortStableFunc(kinds, func(a, b int) int { return cmp.Compare(idle[b], idle[a]) })
	return kinds[:min(len(kinds), whatIfKinds)]
}

// helpMemory finds the least memory that brings most of what any brings.
func (m *model) helpMemory(a Allocation, k *kind, nowMs, bestMs float64) (string, error) {
	enough := bestMs + 0.1*(nowMs-bestMs)
	low, high := int64(0), m.stateBytes+k.device.UsableMemoryBytes
	for high-low > max(1, high/256) {
		mid := low + (high-low)/2
		ms, _, err := m.withMemory(k, mid)
		if err != nil {
			return "", err
		}
		if ms <= enough {
			high = mid
		} else {
			low = mid
		}
	}
	ms, after, err := m.withMemory(k, high)
	if err != nil || ms >= nowMs {
		return "", err
	}
	where := fmt.Sprintf("device %d (%s)", k.ranks[0], label(k.device))
	if len(k.ranks) > 1 {
		where = fmt.Sprintf("each of the %d devices like %d (%s)", len(k.ranks), k.ranks[0], label(k.device))
	}
	return fmt.Sprintf("what would help most: %s more on %s would allow %s: +%.1f %% samples/s", amount(high), where, changed(k, a, after), 100*(nowMs/ms-1)), nil
}

// changed is what the ranks of a kind would do in place of what they do.
func changed(k *kind, before, after Allocation) string {
	first := k.ranks[0]
	was, would, old, now := 0, 0, before.Ranks[first], after.Ranks[first]
	for _, rank := range k.ranks {
		was, would = was+before.Ranks[rank].Batch, would+after.Ranks[rank].Batch
	}
	together := ""
	if len(k.ranks) > 1 {
		together = " on them together"
	}
	switch {
	case would != was:
		return fmt.Sprintf("%d samples in place of %d%s", would, was, together)
	case largest(now) != largest(old):
		return fmt.Sprintf("microbatch %d in place of %d", largest(now), largest(old))
	case now.Activations != old.Activations:
		return fmt.Sprintf("%s activations in place of %s", now.Activations, old.Activations)
	}
	return fmt.Sprintf("%.1f %% of the state there in place of %.1f %%", float64(now.StatePPM)/1e4, float64(old.StatePPM)/1e4)
}

// largest is the largest microbatch of a rank.
func largest(r RankAllocation) int {
	most := 0
	for _, b := range r.MicroBatches {
		most = max(most, b)
	}
	return most
}

// helpLink says what collectives in half the time would bring.
func (m *model) helpLink(nowMs float64) (string, error) {
	p := m.problem
	p.Collectives = map[string]Collective{}
	for class, c := range m.problem.Collectives {
		p.Collectives[class] = Collective{c.AllGatherMs / 2, c.ReduceScatterMs / 2}
	}
	ms, err := solveMs(p)
	if err != nil || ms >= nowMs*(1-noticeable) {
		return "", err
	}
	return fmt.Sprintf("what would help most: links twice as fast: +%.1f %% samples/s; or a larger global batch", 100*(nowMs/ms-1)), nil
}

// withMemory is the least time with so many bytes more on every device of a
// kind.
func (m *model) withMemory(k *kind, bytes int64) (float64, Allocation, error) {
	p := m.problem
	p.Devices = append([]Device(nil), p.Devices...)
	for _, rank := range k.ranks {
		p.Devices[rank].UsableMemoryBytes = min(maxBytes, p.Devices[rank].UsableMemoryBytes+bytes)
	}
	return solveRoughly(p)
}

// solveMs is the least iteration time of a problem, or nearly.
func solveMs(p Problem) (float64, error) {
	ms, _, err := solveRoughly(p)
	return ms, err
}

func solveRoughly(p Problem) (float64, Allocation, error) {
	m, err := newModel(p)
	if err != nil {
		return 0, Allocation{}, err
	}
	m.boxes = whatIfBoxes
	a, err := m.solve()
	if err != nil {
		return 0, Allocation{}, err
	}
	cost, err := m.evaluate(a)
	return cost.IterationMs, a, err
}
