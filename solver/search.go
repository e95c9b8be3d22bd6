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
	last     int // stop after so many nodes, 0 for never
	stopped  bool
	lowMs    float64 // no plan is faster
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

// timeOver is the iteration if every step takes the larger of the two.
func (s *search) timeOver(a, b []float64) float64 {
	sum := 0.0
	for d, w := range s.weights {
		sum += w * max(a[d], b[d])
	}
	return sum + s.exposed
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
		if s.nodes++; s.last > 0 && s.nodes > s.last {
			s.stopped = true
			return
		}
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
		if !s.lift(n, step, middle) {
			return
		}
	}
}

// lift raises a lower bound to the next time above that some option has.
func (s *search) lift(n *node, step int, above float64) bool {
	least, ok := nextAbove(n.options, step, above)
	if ok {
		n.least[step] = least
	}
	return ok
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
