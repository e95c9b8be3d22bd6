package solver

import (
	"cmp"
	"math"
	"slices"
)

// group is a number of interchangeable devices and what each can be given:
// the batches in ascending order with the largest value of each.
type group struct {
	devices int
	choices []choice
}

// choice is a batch, what it is worth, and where it came from.
type choice struct {
	batch, value int
	source       int
}

// knapsack gives every device one choice such that the batches sum to total
// and the values to at least need: for every group one index into choices per
// device, ascending. It returns false if there is no such way.
//
// It is a multiple-choice knapsack. Its linear relaxation (upper hulls, merged
// by slope) bounds it from above and, rounded, is nearly always a solution;
// else the multiplier of the relaxation gives every choice a loss, only
// choices within the slack of the bound can matter, and a small dynamic
// program over those decides.
func knapsack(groups []group, total, need int) ([][]int, bool) {
	low, high := 0, 0
	for _, g := range groups {
		if len(g.choices) == 0 {
			return nil, false
		}
		low += g.devices * g.choices[0].batch
		high += g.devices * g.choices[len(g.choices)-1].batch
	}
	if low > total || high < total {
		return nil, false
	}
	steps := hullSteps(groups)
	picks := make([][]int, len(groups))
	at := make([]int, len(groups)) // every device of the group stands at this choice
	left := total - low
	for _, s := range steps {
		if left == 0 {
			break
		}
		g := &groups[s.group]
		if whole := g.devices * s.rise; whole <= left {
			left -= whole
			at[s.group] = s.to
			continue
		}
		moved := left / s.rise
		left -= moved * s.rise
		for range g.devices - moved {
			picks[s.group] = append(picks[s.group], s.from)
		}
		for range moved {
			picks[s.group] = append(picks[s.group], s.to)
		}
		if left > 0 {
			return exact(groups, total, need, s)
		}
		break
	}
	value := 0
	for i, g := range groups {
		for len(picks[i]) < g.devices {
			picks[i] = append(picks[i], at[i])
		}
		for _, c := range picks[i] {
			value += g.choices[c].value
		}
	}
	return picks, value >= need
}

// step is one edge of the upper hull of a group.
type step struct {
	group, from, to int
	rise, gain      int // in batch and value
}

// hullSteps lists the edges of all hulls, best value per sample first. Points
// on an edge are kept as corners, so that edges are short.
func hullSteps(groups []group) []step {
	var steps []step
	var hull []int
	for g, group := range groups {
		c := group.choices
		hull = hull[:0]
		for i := range c {
			for len(hull) > 1 {
				a, b := c[hull[len(hull)-2]], c[hull[len(hull)-1]]
				if (b.value-a.value)*(c[i].batch-b.batch) >= (c[i].value-b.value)*(b.batch-a.batch) {
					break
				}
				hull = hull[:len(hull)-1]
			}
			hull = append(hull, i)
		}
		for i := 1; i < len(hull); i++ {
			a, b := hull[i-1], hull[i]
			steps = append(steps, step{g, a, b, c[b].batch - c[a].batch, c[b].value - c[a].value})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.gain*a.rise, a.gain*b.rise) })
	return steps
}

// exact decides where the relaxation splits a step: scores are values less
// the price that the split step puts on a sample.
func exact(groups []group, total, need int, split step) ([][]int, bool) {
	bound := split.gain * total
	loss := make([][]int, len(groups))
	for i, g := range groups {
		best := math.MinInt
		for _, c := range g.choices {
			best = max(best, c.value*split.rise-c.batch*split.gain)
		}
		bound += g.devices * best
		for _, c := range g.choices {
			loss[i] = append(loss[i], best-(c.value*split.rise-c.batch*split.gain))
		}
	}
	slack := bound - need*split.rise
	if slack < 0 {
		return nil, false
	}
	return newLedger(groups, loss, slack, total).solve()
}
