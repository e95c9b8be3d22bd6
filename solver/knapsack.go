package solver

import (
	"cmp"
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

// knapsack is the question whether every device can be given one choice such
// that the batches sum to total and the values to at least need.
//
// It is a multiple-choice knapsack. Its linear relaxation (upper hulls, merged
// by slope) bounds it from above and, rounded, is nearly always a solution;
// else the multiplier of the relaxation gives every choice a loss, only
// choices within the slack of the bound can matter, and a small dynamic
// program over those decides.
type knapsack struct {
	groups      []group
	total, need int

	price step  // the step that the relaxation splits
	best  []int // by group: the best score at that price
	slack int   // the bound less what is needed, in scores
	picks [][]int
	value int
}

// step is one edge of the upper hull of a group.
type step struct {
	group, from, to int
	rise, gain      int // in batch and value
}

// solve decides it: picks holds for every group one choice per device.
func (k *knapsack) solve() bool {
	low, high := 0, 0
	for _, g := range k.groups {
		if len(g.choices) == 0 {
			return false
		}
		low += g.devices * g.choices[0].batch
		high += g.devices * g.choices[len(g.choices)-1].batch
	}
	if low > k.total || high < k.total {
		return false
	}
	left := k.relax(k.total - low)
	if k.bound(); k.slack < 0 {
		return false
	}
	if left == 0 && k.value >= k.need {
		return true
	}
	if left > 0 && k.repair(left) {
		return true
	}
	return newLedger(k).solve()
}

// relax climbs the hulls, best value per sample first, and returns what is
// left where a step is larger than that.
func (k *knapsack) relax(left int) int {
	k.price = step{rise: 1}
	at := make([]int, len(k.groups))
	moved := 0 // devices of the last step's group that took it
	for _, s := range hullSteps(k.groups) {
		if left == 0 {
			break
		}
		k.price = s
		g := &k.groups[s.group]
		if moved = min(g.devices, left/s.rise); moved < g.devices {
			left -= moved * s.rise
			break
		}
		left -= moved * s.rise
		at[s.group] = s.to
		moved = 0
	}
	k.picks = make([][]int, len(k.groups))
	for i, g := range k.groups {
		for d := range g.devices {
			c := at[i]
			if i == k.price.group && d < moved {
				c = k.price.to
			}
			k.picks[i] = append(k.picks[i], c)
			k.value += g.choices[c].value
		}
	}
	return left
}

// bound scores every choice: its value less the price of its samples. The
// best scores bound what all devices can be worth.
func (k *knapsack) bound() {
	k.slack = k.price.gain*k.total - k.need*k.price.rise
	for _, g := range k.groups {
		best := k.score(g.choices[0].batch, g.choices[0].value)
		for _, c := range g.choices[1:] {
			best = max(best, k.score(c.batch, c.value))
		}
		k.best = append(k.best, best)
		k.slack += g.devices * best
	}
}

func (k *knapsack) score(batch, value int) int { return value*k.price.rise - batch*k.price.gain }

// useless says that no solution gives a device of the group this choice.
func (k *knapsack) useless(group, batch, value int) bool {
	return k.best[group]-k.score(batch, value) > k.slack
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
