package solver

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// nextBest says what the plan with the other shares costs.
func (w *whatIf) nextBest(shares Shares) (string, error) {
	if w.m.problem.Shares != "" {
		return "", nil
	}
	p := w.m.problem
	p.Shares = EvenShares
	if shares == EvenShares {
		p.Shares = RaggedShares
	}
	next, err := w.solve(p, math.Inf(1))
	if err != nil {
		return "", err
	}
	if next == nil {
		m, err := newModel(p)
		if err != nil {
			return "", err
		}
		none := m.infeasible()
		return fmt.Sprintf("next best: none; with %s shares nothing fits: %s lacks %s", p.Shares, m.device(none.Rank), amount(none.MissingBytes)), nil
	}
	if percent := 100 * (next.bestMs/w.nowMs - 1); percent >= 0.05 {
		return fmt.Sprintf("next best: with %s shares %s (+%.1f %%)", p.Shares, seconds(next.bestMs), percent), nil
	}
	return fmt.Sprintf("next best: with %s shares, as fast", p.Shares), nil
}

// help says which change would shorten the iteration most: memory on the
// devices of a kind that memory limits, or a faster link if the collectives
// bind.
func (w *whatIf) help(a Allocation, ranks []RankExplanation) (string, error) {
	best, who := w.nowMs*(1-noticeable), -1
	for _, i := range w.m.shortOfMemory(ranks) {
		more, err := w.withMemory(w.m.kinds[i], maxBytes)
		if err != nil {
			return "", err
		}
		if more != nil && more.bestMs < best {
			best, who = more.bestMs, i
		}
	}
	if who >= 0 {
		return w.helpMemory(a, w.m.kinds[who], best)
	}
	for _, r := range ranks {
		if r.Limit == LimitLink {
			return w.helpLink()
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
func (w *whatIf) helpMemory(a Allocation, k *kind, bestMs float64) (string, error) {
	enough := bestMs + 0.1*(w.nowMs-bestMs)
	low, high := int64(0), w.m.stateBytes+k.device.UsableMemoryBytes
	for high-low > max(1, high/256) {
		mid := low + (high-low)/2
		ok, err := w.reaches(k, mid, enough)
		if err != nil {
			return "", err
		}
		if ok {
			high = mid
		} else {
			low = mid
		}
	}
	more, err := w.withMemory(k, high)
	if err != nil || more == nil {
		return "", err
	}
	more.settle()
	after := more.allocate()
	where := w.m.device(k.ranks[0])
	if len(k.ranks) > 1 {
		where = fmt.Sprintf("each of the %d devices like %d (%s)", len(k.ranks), k.ranks[0], label(k.device))
	}
	return fmt.Sprintf("what would help most: %s more on %s would allow %s: +%.1f %% samples/s", amount(high), where, w.m.changed(k, a, after), 100*(w.nowMs/more.bestMs-1)), nil
}

// helpLink says what collectives in half the time would bring.
func (w *whatIf) helpLink() (string, error) {
	p := w.m.problem
	p.Collectives = map[string]Collective{}
	for class, c := range w.m.problem.Collectives {
		p.Collectives[class] = Collective{c.AllGatherMs / 2, c.ReduceScatterMs / 2}
	}
	faster, err := w.solve(p, w.nowMs)
	if err != nil || faster == nil || faster.bestMs >= w.nowMs*(1-noticeable) {
		return "", err
	}
	return fmt.Sprintf("what would help most: links twice as fast: +%.1f %% samples/s; or a larger global batch", 100*(w.nowMs/faster.bestMs-1)), nil
}
