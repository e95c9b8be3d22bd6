package solver

import (
	"cmp"
	"slices"
)

// megatronHet is what the Cephalo paper (arXiv 2411.01075) compares with under
// the name Megatron-Het: Megatron-LM's pipeline with tensor parallelism inside
// a node, with as many units on a stage as suits its devices.
//
// It assumes: one tensor-parallel degree for all, within a node; as many
// stages in every data-parallel replica, with the same units and the same
// number of microbatches, which all have one size; 1F1B; the state of a stage
// whole on its devices (no ZeRO); gradients reduced once, after the last
// microbatch. Every degree, number of replicas, microbatch and division is
// tried; teams of equal speed form a stage. Handing over overlaps with
// computing, and what a link costs is counted only where it is known: both
// favour it.
type megatronHet struct{}

var _ Strategy = megatronHet{}

// Name implements Strategy.
func (megatronHet) Name() string { return StrategyMegatronHet }

// Predict implements Strategy.
func (megatronHet) Predict(p Problem) (Outcome, error) {
	m, err := newModel(p.free())
	if err != nil {
		return Outcome{}, err
	}
	row, err := m.pipeable(StrategyMegatronHet)
	if err != nil {
		return Outcome{}, err
	}
	var best replicas
	err = m.eachPipe(func(micro int, policy Policy) {
		for degree := 1; degree <= 8; degree *= 2 {
			teams, ok := m.uniformTeams(degree)
			if !ok {
				break
			}
			for copies := 1; copies <= len(teams); copies++ {
				rounds := p.GlobalBatch / micro
				if len(teams)%copies != 0 || rounds%copies != 0 {
					continue
				}
				r, ok := m.alike(row, teams, copies, rounds/copies, micro, policy, best.limit())
				if ok && (best.ms == 0 || r.ms < best.ms*(1-tolerance)) {
					best = r
				}
			}
		}
	})
	if err != nil {
		return Outcome{}, &InapplicableError{StrategyMegatronHet, err.Error()}
	}
	if best.pipes == nil {
		return Outcome{}, m.noPipe(StrategyMegatronHet)
	}
	return m.pipeOutcome(best), nil
}

// uniformTeams are teams of so many ranks of one node, the nodes' fastest
// together; it fails if a node's ranks are no multiple of that.
func (m *model) uniformTeams(degree int) ([]team, bool) {
	var teams []team
	for _, ranks := range m.byNode() {
		if len(ranks)%degree != 0 {
			return nil, false
		}
		slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(m.slowness(a), m.slowness(b)) })
		for part := range slices.Chunk(ranks, degree) {
			teams = append(teams, team(part))
		}
	}
	return teams, true
}

// alike makes pipelines of the same division: stage s is held by teams that
// are next to each other in speed, one for each replica, and is as slow as the
// slowest of them.
func (m *model) alike(row []int, teams []team, copies, rounds, micro int, policy Policy, limit float64) (replicas, bool) {
	teams = slices.Clone(teams)
	slices.SortStableFunc(teams, func(a, b team) int { return cmp.Compare(m.teamSlowness(a), m.teamSlowness(b)) })
	pipes := make([][]team, copies)
	for i, t := range teams {
		pipes[i%copies] = append(pipes[i%copies], t)
	}
	// Within a node stages follow each other, so that few links leave it; the
	// last in speed of every stage decides the division.
	r := replicas{micro: micro, policy: policy}
	cut, ok := m.newCutter(row, pipes[copies-1], rounds, micro, policy).cut(limit)
	if !ok {
		return r, false
	}
	slowest := 0.0
	for _, teams := range pipes {
		c := m.newCutter(row, teams, rounds, micro, policy)
		p := pipeline{teams: teams}
		for s, stage := range cut.stages {
			cost, fits := c.stage(s, stage.first, stage.end)
			if !fits {
				return r, false
			}
			p.stages = append(p.stages, cost)
			p.fillMs += cost.ms
			p.slowMs = max(p.slowMs, cost.ms)
		}
		r.pipes, r.rounds = append(r.pipes, p), append(r.rounds, rounds)
		slowest = max(slowest, p.ms(rounds))
	}
	r.ms = slowest + m.reduceMs(row, r.pipes) + m.problem.FixedMs
	return r, true
}

// byNode are the ranks of every node, nodes in the order of their first rank.
func (m *model) byNode() [][]int {
	var nodes [][]int
	at := map[int]int{}
	for rank := range m.kindOf {
		node := m.nodeOf(rank)
		i, ok := at[node]
		if !ok {
			i = len(nodes)
			at[node] = i
			nodes = append(nodes, nil)
		}
		nodes[i] = append(nodes[i], rank)
	}
	return nodes
}

// slowness is the time of one sample through the whole model.
func (m *model) slowness(rank int) float64 {
	sum := 0.0
	for i, c := range m.kinds[m.kindOf[rank]].costs {
		sum += float64(m.problem.Units[i].Count) * (c.ForwardMs.At(1) + c.BackwardMs.At(1))
	}
	return sum
}

func (m *model) teamSlowness(t team) float64 {
	slowest := 0.0
	for _, rank := range t {
		slowest = max(slowest, m.slowness(rank))
	}
	return slowest / float64(len(t))
}
