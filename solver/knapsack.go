package solver

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
	at    []int // by group: the choice before that step
	best  []int // by group: the best score at that price
	slack int   // the bound less what is needed, in scores
	picks [][]int
	value int

	steps   []step // scratch, as what follows
	hull    []int
	changed [][2]change
}

// solve decides it: picks holds for every group one choice per device.
func (k *knapsack) solve() bool {
	k.price, k.best, k.slack, k.value = step{rise: 1}, k.best[:0], 0, 0
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
	k.climb(k.total - low)
	if k.bound(); k.slack < 0 {
		return false
	}
	left := k.relax(k.total - low)
	if left == 0 && k.value >= k.need {
		return true
	}
	if left > 0 && k.repair(left) {
		return true
	}
	return newLedger(k).solve()
}

// relax gives every device the choice where its hull is as steep as the price,
// and returns what is left where the step at the price is larger than that.
func (k *knapsack) relax(left int) int {
	for len(k.picks) < len(k.groups) {
		k.picks = append(k.picks, nil)
	}
	k.picks = k.picks[:len(k.groups)]
	for i, g := range k.groups {
		left -= g.devices * (g.choices[k.at[i]].batch - g.choices[0].batch)
	}
	moved := 0 // devices of the price's group that take its step
	if left > 0 {
		moved = left / k.price.rise
		left -= moved * k.price.rise
	}
	for i, g := range k.groups {
		k.picks[i] = k.picks[i][:0]
		for d := range g.devices {
			c := k.at[i]
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
