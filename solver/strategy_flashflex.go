package solver

import (
	"cmp"
	"math"
	"slices"
)

// flashFlex is the asymmetric combination of pipeline, tensor and data
// parallelism of FlashFlex (Yan et al., arXiv 2409.01143) and HexiScale (the
// same work's later name): every replica has its own number of stages, its own
// division of the units and its own share of the batch, and every stage its
// own tensor-parallel degree.
//
// It assumes: teams of equal devices within a node, up to a degree; 1F1B; the
// state of a stage whole on its devices (no ZeRO); one microbatch size;
// gradients reduced once, unit by unit, after the last microbatch. The papers
// search by graph partitioning; here every degree, number of replicas and
// microbatch is tried with two ways to deal the teams to the replicas and two
// orders of the stages, the units are divided by a dynamic program, and
// microbatches go to whichever replica is done first.
type flashFlex struct{}

var _ Strategy = flashFlex{}

// Name implements Strategy.
func (flashFlex) Name() string { return StrategyFlashFlex }

// Predict implements Strategy.
func (flashFlex) Predict(p Problem) (Outcome, error) {
	m, err := newModel(p.free())
	if err != nil {
		return Outcome{}, err
	}
	row, err := m.pipeable(StrategyFlashFlex)
	if err != nil {
		return Outcome{}, err
	}
	layouts := m.layouts(len(row))
	var best replicas
	err = m.eachPipe(func(micro int, policy Policy) {
		known := memo{}
		for _, pipes := range layouts {
			if r, ok := m.unlike(row, pipes, micro, policy, known); ok && (best.ms == 0 || r.ms < best.ms*(1-tolerance)) {
				best = r
			}
		}
	})
	if err != nil {
		return Outcome{}, &InapplicableError{StrategyFlashFlex, err.Error()}
	}
	if best.pipes == nil {
		return Outcome{}, m.noPipe(StrategyFlashFlex)
	}
	return m.pipeOutcome(best), nil
}

// layouts are the ways to arrange teams in replicas that are tried.
func (m *model) layouts(units int) [][][]team {
	var out [][][]team
	var sizes []int
	for degree := 1; degree <= 8; degree *= 2 {
		teams := m.equalTeams(degree)
		if slices.Contains(sizes, len(teams)) {
			continue // no larger team than before
		}
		sizes = append(sizes, len(teams))
		for copies := 1; copies <= min(len(teams), m.problem.GlobalBatch); copies = more(copies) {
			for _, dealt := range [][][]team{inTurn(m, teams, copies), inRow(teams, copies)} {
				if slices.ContainsFunc(dealt, func(p []team) bool { return len(p) == 0 || len(p) > units }) {
					continue
				}
				out = append(out, dealt, m.largestFirst(dealt))
			}
		}
	}
	return out
}

// more is the next number of replicas to try: each up to 16, then doubled.
func more(copies int) int {
	if copies < 16 {
		return copies + 1
	}
	return 2 * copies
}

// equalTeams are teams of up to so many ranks of one node and kind.
func (m *model) equalTeams(degree int) []team {
	var teams []team
	for _, ranks := range m.byNode() {
		byKind := map[int][]int{}
		var kinds []int
		for _, rank := range ranks {
			k := m.kindOf[rank]
			if byKind[k] == nil {
				kinds = append(kinds, k)
			}
			byKind[k] = append(byKind[k], rank)
		}
		for _, k := range kinds {
			for part := range slices.Chunk(byKind[k], degree) {
				teams = append(teams, team(part))
			}
		}
	}
	return teams
}

// inTurn deals teams by speed, back and forth, so that replicas are alike.
func inTurn(m *model, teams []team, copies int) [][]team {
	sorted := slices.Clone(teams)
	slices.SortStableFunc(sorted, func(a, b team) int { return cmp.Compare(m.teamSlowness(a), m.teamSlowness(b)) })
	out := make([][]team, copies)
	for i, t := range sorted {
		at := i % (2 * copies)
		if at >= copies {
			at = 2*copies - 1 - at
		}
		out[at] = append(out[at], t)
	}
	return out
}

// inRow gives every replica neighbours, so that few links leave a node.
func inRow(teams []team, copies int) [][]team {
	out := make([][]team, copies)
	for i := range out {
		out[i] = slices.Clone(teams[i*len(teams)/copies : (i+1)*len(teams)/copies])
	}
	return out
}

// largestFirst orders the stages by memory: the first keep most microbatches.
func (m *model) largestFirst(pipes [][]team) [][]team {
	out := make([][]team, len(pipes))
	for i, p := range pipes {
		out[i] = slices.Clone(p)
		slices.SortStableFunc(out[i], func(a, b team) int {
			return cmp.Compare(m.problem.Devices[b[0]].UsableMemoryBytes*int64(len(b)), m.problem.Devices[a[0]].UsableMemoryBytes*int64(len(a)))
		})
	}
	return out
}

// unlike divides the units in every replica for itself, and the microbatches
// among the replicas.
func (m *model) unlike(row []int, pipes [][]team, micro int, policy Policy, known memo) (replicas, bool) {
	r := replicas{micro: micro, policy: policy, rounds: make([]int, len(pipes))}
	total := m.problem.GlobalBatch / micro
	if total < len(pipes) {
		return r, false
	}
	for _, teams := range pipes {
		each, most := (total+len(pipes)-1)/len(pipes), total-len(pipes)+1
		p, ok := known.cut(m, teams, func() *cutter {
			c := m.newCutter(row, teams, each, micro, policy)
			c.most = most
			return c
		}, each, most)
		if !ok {
			return r, false
		}
		r.pipes = append(r.pipes, p)
	}
	slowest := 0.0
	for range total {
		first, least := 0, math.Inf(1)
		for i, p := range r.pipes {
			if ms := p.ms(r.rounds[i] + 1); ms < least {
				first, least = i, ms
			}
		}
		r.rounds[first]++
		slowest = max(slowest, least)
	}
	if slices.Contains(r.rounds, 0) {
		return r, false // with fewer replicas that is tried anyway
	}
	r.ms = slowest + m.reduceMs(row, r.pipes) + m.problem.FixedMs
	return r, true
}
