package solver

import (
	"math"
	"slices"
)

// tolerance is the relative difference below which two times are equal.
const tolerance = 1e-9

// search finds the best picks for one way to share the state.
type search struct {
	m       *model
	shares  Shares
	weights []float64
	floors  []float64
	exposed float64
	menus   []*menu
	total   int

	pool     [][]*option // by kind, batches ascending
	limit    float64     // an iteration must take less
	headroom int64       // and every device must keep so much free
	best     [][]*option // by kind and device of the kind
	bestMs   float64
	improve  func(n *node, picks [][]*option) // what to do with picks within the limit
	nodes    int
}

func newSearch(m *model, shares Shares) *search {
	s := &search{m: m, shares: shares, weights: m.weights(), floors: m.floors(shares),
		exposed: m.exposedMs(shares), total: m.problem.GlobalBatch, limit: math.Inf(1), bestMs: math.Inf(1)}
	for _, k := range m.kinds {
		s.menus = append(s.menus, newMenu(m, k, s.floors))
	}
	return s
}

// node is a box of bounds on the time of one unit, by step: every device stays
// at or below most, and at least one reaches least.
type node struct {
	least, most []float64
	options     [][]*option
}

func (s *search) root() *node {
	most := make([]float64, len(s.floors))
	for d := range most {
		most[d] = math.Inf(1)
	}
	return &node{least: slices.Clone(s.floors), most: most, options: s.pool}
}

// child is the node without the options that the bounds exclude.
func (s *search) child(n *node, step int, least, most float64) *node {
	c := &node{least: slices.Clone(n.least), most: slices.Clone(n.most), options: n.options}
	c.least[step], c.most[step] = max(least, c.least[step]), min(most, c.most[step])
	return c
}

// narrow drops the options that can be part of no solution below the limit:
// those above a bound, and those whose own times, raised to what some device
// reaches anyway, are already too much.
func (s *search) narrow(n *node) {
	options := make([][]*option, len(n.options))
	for k, list := range n.options {
		kept := make([]*option, 0, len(list))
		for _, o := range list {
			if noneAbove(o.times, n.most) && s.timeOver(n.least, o.times) < s.limit {
				kept = append(kept, o)
			}
		}
		options[k] = kept
	}
	n.options = options
}

// timeOver is the iteration if every step takes the larger of the two.
func (s *search) timeOver(a, b []float64) float64 {
	sum := 0.0
	for d, w := range s.weights {
		sum += w * max(a[d], b[d])
	}
	return sum + s.exposed
}

// value of an option: the state that it can hold, in parts per million, with
// the headroom kept free; -1 if it cannot be used. Even shares are already
// taken off the room, and there is nothing to collect.
func (s *search) value(o *option) int {
	room := o.room - s.headroom
	if s.shares == RaggedShares {
		return s.m.ppmIn(room)
	}
	if room < 0 {
		return -1
	}
	return 0
}

// need is the value that all options together must reach.
func (s *search) need() int {
	if s.shares == RaggedShares {
		return TotalPPM
	}
	return 0
}

// pick chooses one option per device from the node, or says that none exist.
func (s *search) pick(n *node) ([][]*option, bool) {
	groups := make([]group, len(n.options))
	for k, list := range n.options {
		g := &groups[k]
		g.devices = len(s.m.kinds[k].ranks)
		for i, o := range list {
			value := s.value(o)
			if value < 0 {
				continue
			}
			last := len(g.choices) - 1
			if last < 0 || g.choices[last].batch != o.batch {
				g.choices = append(g.choices, choice{o.batch, value, i})
				continue
			}
			old := &g.choices[last]
			if value > old.value || value == old.value && o.total < list[old.source].total {
				*old = choice{o.batch, value, i}
			}
		}
	}
	chosen, ok := knapsack(groups, s.total, s.need())
	if !ok {
		return nil, false
	}
	picks := make([][]*option, len(groups))
	for k, list := range chosen {
		for _, c := range list {
			picks[k] = append(picks[k], n.options[k][groups[k].choices[c].source])
		}
	}
	return picks, true
}

// reached is the largest time of every step, the collectives included.
func (s *search) reached(picks [][]*option) []float64 {
	out := slices.Clone(s.floors)
	for _, list := range picks {
		for _, o := range list {
			for d, t := range o.times {
				out[d] = max(out[d], t)
			}
		}
	}
	return out
}

// explore searches a box: it hands every solution below the limit to improve,
// which tightens what is asked for, and splits the box at the step that keeps
// the relaxed solution furthest from its bound. The values of a step are
// finitely many and every split takes one away, so it ends.
func (s *search) explore(n *node) {
	for {
		s.nodes++
		s.narrow(n)
		picks, ok := s.pick(n)
		if !ok {
			return
		}
		reached := s.reached(picks)
		if s.timeOver(reached, reached) < s.limit {
			s.improve(n, picks)
			continue
		}
		step := s.widest(n, reached)
		middle := (n.least[step] + reached[step]) / 2
		s.explore(s.child(n, step, n.least[step], middle))
		least, ok := nextAbove(n.options, step, middle)
		if !ok {
			return
		}
		n = s.child(n, step, least, n.most[step])
	}
}

// widest is the step that would save most at the lower bound of the box.
func (s *search) widest(n *node, reached []float64) int {
	step, most := 0, -1.0
	for d, w := range s.weights {
		if gap := w * (reached[d] - n.least[d]); gap > most {
			step, most = d, gap
		}
	}
	return step
}

// nextAbove is the smallest time above a bound that any option has.
func nextAbove(options [][]*option, step int, bound float64) (float64, bool) {
	next := math.Inf(1)
	for _, list := range options {
		for _, o := range list {
			if t := o.times[step]; t > bound && t < next {
				next = t
			}
		}
	}
	return next, !math.IsInf(next, 1)
}

// faster keeps the picks as the best and asks for less than they take.
func (s *search) faster(_ *node, picks [][]*option) {
	reached := s.reached(picks)
	s.best, s.bestMs = picks, s.timeOver(reached, reached)
	s.limit = s.bestMs * (1 - tolerance)
}
