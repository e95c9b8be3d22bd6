package solver

import (
	"math"
	"slices"
)

// ledger is the dynamic program of a knapsack: device after device, the least loss
// with which the batches so far can sum to each amount.
type ledger struct {
	k       *knapsack
	groups  []group
	useful  [][]int // by group: choices whose loss is within the slack
	loss    [][]int
	slack   int
	total   int
	devices []int // group of each device
	minRest []int // what the devices from i on take at least
	maxRest []int // and at most
}

func newLedger(k *knapsack) *ledger {
	l := &ledger{k: k, groups: k.groups, slack: k.slack, total: k.total}
	for i, g := range k.groups {
		useful, loss := []int(nil), make([]int, len(g.choices))
		for c, choice := range g.choices {
			loss[c] = k.best[i] - k.score(choice.batch, choice.value)
			if loss[c] <= k.slack {
				useful = append(useful, c)
			}
		}
		l.useful, l.loss = append(l.useful, useful), append(l.loss, loss)
		for range g.devices {
			l.devices = append(l.devices, i)
		}
	}
	n := len(l.devices)
	l.minRest, l.maxRest = make([]int, n+1), make([]int, n+1)
	for i := n - 1; i >= 0; i-- {
		g := l.devices[i]
		u := l.useful[g]
		l.minRest[i] = l.minRest[i+1] + l.groups[g].choices[u[0]].batch
		l.maxRest[i] = l.maxRest[i+1] + l.groups[g].choices[u[len(u)-1]].batch
	}
	return l
}

// row holds the sums from base on after some devices.
type row struct {
	base  int
	least []int   // least loss, math.MaxInt if out of reach
	taken []int32 // the last device's choice
}

func (l *ledger) row(after int) row {
	lo := max(l.minRest[0]-l.minRest[after], l.total-l.maxRest[after])
	hi := min(l.maxRest[0]-l.maxRest[after], l.total-l.minRest[after])
	r := row{base: lo}
	if hi >= lo {
		r.least, r.taken = make([]int, hi-lo+1), make([]int32, hi-lo+1)
	}
	for i := range r.least {
		r.least[i] = math.MaxInt
	}
	return r
}

// solve leaves the picks in the knapsack.
func (l *ledger) solve() bool {
	rows := make([]row, 0, len(l.devices)+1)
	first := l.row(0)
	if len(first.least) == 0 {
		return false
	}
	first.least[-first.base] = 0
	rows = append(rows, first)
	for i, g := range l.devices {
		from, to := rows[i], l.row(i+1)
		for s, least := range from.least {
			if least == math.MaxInt {
				continue
			}
			for _, c := range l.useful[g] {
				at := from.base + s + l.groups[g].choices[c].batch - to.base
				if at < 0 {
					continue
				}
				if at >= len(to.least) {
					break
				}
				if sum := least + l.loss[g][c]; sum <= l.slack && sum < to.least[at] {
					to.least[at], to.taken[at] = sum, int32(c)
				}
			}
		}
		rows = append(rows, to)
	}
	last := rows[len(rows)-1]
	if len(last.least) == 0 || last.least[l.total-last.base] == math.MaxInt {
		return false
	}
	l.k.picks = l.trace(rows)
	return true
}

// trace walks back through the rows.
func (l *ledger) trace(rows []row) [][]int {
	picks := make([][]int, len(l.groups))
	sum := l.total
	for i := len(l.devices) - 1; i >= 0; i-- {
		r, g := rows[i+1], l.devices[i]
		c := int(r.taken[sum-r.base])
		sum -= l.groups[g].choices[c].batch
		picks[g] = append(picks[g], c)
	}
	for _, p := range picks {
		slices.Sort(p)
	}
	return picks
}
