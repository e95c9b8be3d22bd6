package solver

import (
	"math"
	"slices"
)

// tolerance is the relative difference below which two times are equal.
const tolerance = 1e-9

// splitAt is where a box splits between what a step takes at least and what the
// picks reach: of 0.3 to 0.95 what needed the fewest boxes, over fleets of all sizes.
const splitAt = 0.75

// search finds the best picks for one way to share the state.
type search struct {
	m     *model
	total int
	steps int

	catalogue *catalogue

	pool     pool
	limit    float64     // an iteration must take less
	headroom int64       // and every device must keep so much free
	best     [][]*option // by kind and device of the kind
	bestIn   *division   // what they decide
	bestMs   float64
	improve  func(n *node) bool // what to do with picks within the limit; false if they cannot be
	nodes    int
	last     int // stop after so many nodes, 0 for never
	stopped  bool
	lowMs    float64 // no plan is faster
	upper    float64 // and none that is asked for slower

	choosers  []classes
	first     *division // at the root
	mustRag   bool      // some class must be ragged
	divisions map[decision]*division

	sack    knapsack
	choices []choice
	nodesAt []*node // by depth, since a search works on one path at a time
	top     []float64
}

func newSearch(c *catalogue) *search {
	s := &search{m: c.m, steps: len(c.m.steps()), catalogue: c, total: c.m.problem.GlobalBatch, limit: math.Inf(1),
		bestMs: math.Inf(1), choosers: c.m.choosers(), divisions: map[decision]*division{}}
	root := decision{even: s.m.every(), most: s.m.mostKept()}
	if s.m.problem.Shares != EvenShares {
		for _, set := range s.choosers { // what has no state stays even
			root.even &^= set
		}
	}
	if s.m.split >= 0 {
		root.least = 1
	}
	s.first = s.divide(root)
	s.mustRag = s.m.problem.Shares == RaggedShares && len(s.choosers) > 0
	return s
}

// node is a box of bounds on the time of one unit, by step: every device stays
// at or below most, and at least one reaches least.
type node struct {
	depth       int
	split       *division
	least, most []float64
	options     [][]int32 // by kind, batches ascending
	from        [][]int32 // where its options come from: another node, until it has its own
	memory      []int32
	lowered     int // the step of which only the upper bound differs from the other node's; -1 if more does
}

// box is a node with room for all options of the lists.
func (s *search) box(depth int, split *division, least, most []float64, from [][]int32) *node {
	for len(s.nodesAt) <= depth {
		s.nodesAt = append(s.nodesAt, &node{depth: len(s.nodesAt)})
	}
	n := s.nodesAt[depth]
	s.appraise(split)
	n.split = split
	n.least, n.most = append(n.least[:0], least...), append(n.most[:0], most...)
	size := 0
	for _, list := range from {
		size += len(list)
	}
	if len(n.memory) < size {
		n.memory = make([]int32, size)
	}
	n.from, n.options, n.lowered = from, n.options[:0], -1
	at := 0
	for _, list := range from {
		n.options = append(n.options, n.memory[at:at:at+len(list)])
		at += len(list)
	}
	return n
}

func (s *search) root() *node {
	most := make([]float64, s.steps)
	for d := range most {
		most[d] = math.Inf(1)
	}
	return s.box(0, s.first, s.first.floors, most, s.pool.byKind)
}

// child is the node without the options of which a step takes more.
func (s *search) child(n *node, step int, most float64) *node {
	c := s.box(n.depth+1, n.split, n.least, n.most, n.options)
	c.most[step], c.lowered = most, step
	return c
}

// decide narrows what the node has open.
func (s *search) decide(n *node, c decision) {
	n.split = s.divide(c)
	s.appraise(n.split)
	for d, floor := range n.split.floors {
		n.least[d] = max(n.least[d], floor)
	}
}

// reached is the largest time of computing of every step over the picks. It holds until it is next asked for.
func (s *search) reached(d *division) []float64 {
	s.top = append(s.top[:0], d.floors...)
	for k, list := range s.sack.picks {
		for _, c := range list {
			for d, t := range s.pool.list[s.sack.groups[k].choices[c].source].times {
				s.top[d] = max(s.top[d], t)
			}
		}
	}
	return s.top
}

// reachedBy is the same over picks that are kept.
func (s *search) reachedBy(d *division, picks [][]*option) []float64 {
	out := slices.Clone(d.floors)
	for _, list := range picks {
		for _, o := range list {
			for d, t := range o.times {
				out[d] = max(out[d], t)
			}
		}
	}
	return out
}

// timeOf is the iteration with these times of computing.
func (s *search) timeOf(d *division, steps []float64) float64 {
	sum := d.exposed
	for i, t := range steps {
		sum += d.weights[i] * d.beside[i].with(t)
	}
	return sum
}

// explore searches a box: it hands every solution below the limit to improve,
// which tightens what is asked for, and splits the box at the step that keeps
// the relaxed solution furthest from its bound. The values of a step are
// finitely many and every split takes one away, so it ends. Picks that are below
// the limit only as long as something is open split the box there.
func (s *search) explore(n *node) {
	for {
		if s.nodes++; s.last > 0 && s.nodes > s.last {
			s.stopped = true
			return
		}
		if !s.pick(n) {
			return
		}
		reached := s.reached(n.split)
		if s.timeOf(n.split, reached) < s.limit {
			if s.improve(n) {
				continue
			}
			first, second, ok := s.halves(n)
			if !ok {
				return // by rounding: all is decided and it is no better
			}
			child := s.box(n.depth+1, n.split, n.least, n.most, n.options)
			if s.decide(child, first); !s.mustRag || first.even != s.m.every() {
				s.explore(child)
			}
			s.decide(n, second)
			continue
		}
		step := s.widest(n, reached)
		middle := n.least[step] + splitAt*(reached[step]-n.least[step])
		s.explore(s.child(n, step, middle))
		if !s.lift(n, step, middle) {
			return
		}
	}
}

// lift raises a lower bound to the next time above that some option has.
func (s *search) lift(n *node, step int, above float64) bool {
	next, steps := math.Inf(1), s.steps
	for _, list := range n.options {
		for _, id := range list {
			if t := s.pool.times[int(id)*steps+step]; t > above && t < next {
				next = t
			}
		}
	}
	if math.IsInf(next, 1) {
		return false
	}
	n.least[step] = next
	return true
}

// widest is the step that would save most at the lower bound of the box.
func (s *search) widest(n *node, reached []float64) int {
	step, most := 0, -1.0
	for d, w := range n.split.weights {
		b := n.split.beside[d]
		if gap := w * (b.with(reached[d]) - b.with(n.least[d])); gap > most {
			step, most = d, gap
		}
	}
	return step
}

// faster keeps the picks as the best and asks for less than they take.
func (s *search) faster(n *node) bool {
	d, ms := s.settled(n)
	if d == nil {
		return false
	}
	s.best, s.bestIn, s.bestMs = s.picked(), d, ms
	s.limit = ms * (1 - tolerance)
	return true
}
