package solver

import (
	"math"
	"slices"
)

// pipeline is a chain of teams that shares out the model's units in order.
type pipeline struct {
	teams  []team
	stages []stageCost
	fillMs float64 // one microbatch through all stages and back
	slowMs float64 // the slowest stage
}

// stageCost is what a stage costs with one microbatch.
type stageCost struct {
	first, end int // units
	ms         float64
	computeMs  float64
	bytes      float64 // on each rank of the team
	state      float64
}

// ms is the iteration of n microbatches under 1F1B (Narayanan et al., SC 2021,
// arXiv 2104.04473): the pipeline is filled once, then the slowest stage sets
// the pace.
func (p pipeline) ms(n int) float64 { return p.fillMs + float64(n-1)*p.slowMs }

// chain is the model as a row of units: classes in the order of the problem,
// those that run on the whole batch at the end.
func (m *model) chain() []int {
	var row, last []int
	for i, u := range m.problem.Units {
		if u.WholeBatch {
			last = append(last, i)
			continue
		}
		row = append(row, slices.Repeat([]int{i}, u.Count)...)
	}
	return append(row, last...)
}

// mostUnits bounds the chains that are divided.
const mostUnits = 1024

// cutter divides a chain among teams.
type cutter struct {
	m      *model
	row    []int
	rounds int // microbatches of an iteration, about
	most   int // and at most
	micro  int
	policy Policy
	teams  []team
	costs  [][]unitCost
	sums   [][]stageCost // by team: of the first units
	next   []int         // by unit: the first of another class
	bytes  []float64     // by class: what a unit hands over with a microbatch, both ways
	speeds []float64     // by team: to the next
}

func (m *model) newCutter(row []int, teams []team, rounds, micro int, policy Policy) *cutter {
	c := &cutter{m: m, row: row, rounds: rounds, most: rounds, micro: micro, policy: policy, teams: teams, next: make([]int, len(row))}
	for i := len(row) - 1; i >= 0; i-- {
		c.next[i] = i + 1
		if i+1 < len(row) && row[i+1] == row[i] {
			c.next[i] = c.next[i+1]
		}
	}
	for class := range m.problem.Units {
		c.bytes = append(c.bytes, 2*m.boundaryBytes(class)*float64(micro))
	}
	for s, t := range teams {
		c.speeds = append(c.speeds, math.Inf(1))
		if s+1 < len(teams) {
			c.speeds[s] = m.speed(t[0], teams[s+1][0])
		}
		costs := m.teamCosts(t, micro, policy)
		sum := make([]stageCost, len(row)+1)
		for i, class := range row {
			u := costs[class]
			sum[i+1] = stageCost{ms: sum[i].ms + u.forward + u.backward, computeMs: sum[i].computeMs + u.compute,
				state: sum[i].state + u.state, bytes: sum[i].bytes + u.kept}
		}
		c.costs, c.sums = append(c.costs, costs), append(c.sums, sum)
	}
	return c
}

// stage is what units [first, end) cost team s, and whether they fit. Half of
// the root unit's state, the embedding, lies on the first stage.
func (c *cutter) stage(s, first, end int) (stageCost, bool) {
	from, to := c.sums[s][first], c.sums[s][end]
	out := stageCost{first: first, end: end, ms: to.ms - from.ms, computeMs: to.computeMs - from.computeMs, state: to.state - from.state}
	if root := c.row[len(c.row)-1]; c.m.problem.Units[root].WholeBatch && len(c.teams) > 1 {
		half := c.costs[s][root].state / 2
		if s == 0 {
			out.state += half
		}
		if end == len(c.row) {
			out.state -= half
		}
	}
	peak := 0.0
	for i := first; i < end; i = c.next[i] {
		peak = max(peak, c.costs[s][c.row[i]].peak)
	}
	live := float64(min(c.most, len(c.teams)-s)) // microbatches between their passes
	out.bytes = out.state + live*(to.bytes-from.bytes) + peak
	out.ms = max(out.ms, c.bytes[c.row[end-1]]/c.speeds[s]) // handing over overlaps with computing
	for _, rank := range c.teams[s] {
		d := c.m.problem.Devices[rank]
		if float64(d.ReservedBytes)+out.bytes > float64(d.UsableMemoryBytes) {
			return out, false
		}
	}
	return out, true
}

// cut finds the division of the least time of all rounds, if it is below the
// limit: for some bounds on the slowest stage, the least time to fill.
func (c *cutter) cut(limit float64) (pipeline, bool) {
	if len(c.teams) > len(c.row) {
		return pipeline{}, false
	}
	best, ok := c.within(limit / float64(max(1, c.rounds-1)))
	if !ok {
		return best, false
	}
	low, high := 0.0, best.slowMs
	for range 10 {
		mid := (low + high) / 2
		p, fits := c.within(mid)
		if !fits {
			low = mid
			continue
		}
		if p.ms(c.rounds) < best.ms(c.rounds) {
			best = p
		}
		high = min(mid, p.slowMs)
		if high-low <= 0.01*high {
			break
		}
	}
	return best, true
}

// within is the division that fills fastest of those whose stages all keep to
// a bound: a dynamic program over teams and units.
func (c *cutter) within(bound float64) (pipeline, bool) {
	n, teams := len(c.row), len(c.teams)
	least := make([][]float64, teams+1) // by teams used and units done
	from := make([][]int, teams+1)
	for s := range least {
		least[s], from[s] = make([]float64, n+1), make([]int, n+1)
		for i := range least[s] {
			least[s][i] = math.Inf(1)
		}
	}
	least[0][0] = 0
	for s := range teams {
		for first := s; first < n; first++ {
			if math.IsInf(least[s][first], 1) {
				continue
			}
			for end := first + 1; end <= n-(teams-1-s); end++ {
				if s == teams-1 {
					end = n
				}
				cost, fits := c.stage(s, first, end)
				if !fits || cost.ms > bound {
					break
				}
				if ms := least[s][first] + cost.ms; ms < least[s+1][end] {
					least[s+1][end], from[s+1][end] = ms, first
				}
			}
		}
	}
	if math.IsInf(least[teams][n], 1) {
		return pipeline{}, false
	}
	p := pipeline{teams: c.teams, stages: make([]stageCost, teams), fillMs: least[teams][n]}
	for s, end := teams-1, n; s >= 0; s-- {
		cost, _ := c.stage(s, from[s+1][end], end)
		p.stages[s], end = cost, cost.first
		p.slowMs = max(p.slowMs, cost.ms)
	}
	return p, true
}
