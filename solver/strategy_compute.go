package solver

import (
	"errors"
	"fmt"
)

// computeBalance divides the batch by speed and the state equally: every
// device gets as many samples as it computes in the time of the others,
// without regard to memory. So do Whale (Jia et al., USENIX ATC 2022) within a
// data-parallel group, by the devices' FLOP/s, and Poplar (Zhang et al., AAAI
// 2025, arXiv 2408.12596) under ZeRO-3, by measured speed. Here the measured
// times are used, as Poplar does. Accumulation is ordinary; there are as few
// rounds as memory allows, and every device cuts its batch into that many.
type computeBalance struct{}

var _ Strategy = computeBalance{}

// mostRounds bounds the accumulation rounds that are tried.
const mostRounds = 4096

// Name implements Strategy.
func (computeBalance) Name() string { return StrategyComputeBalance }

// Predict implements Strategy.
func (computeBalance) Predict(p Problem) (Outcome, error) {
	m, err := newModel(p.free())
	if err != nil {
		return Outcome{}, err
	}
	var best Outcome
	var closest *InfeasibleError
	for _, policy := range m.policies {
		for rounds := 1; rounds <= min(mostRounds, p.GlobalBatch); rounds += 1 + rounds/8 {
			a := m.bySpeed(rounds, policy)
			cost, err := m.evaluate(a)
			var none *InfeasibleError
			if errors.As(err, &none) {
				if closest == nil || none.MissingBytes < closest.MissingBytes {
					closest = none
				}
				continue
			}
			if err != nil {
				return Outcome{}, err
			}
			if !best.Fits() || cost.IterationMs < best.IterationMs {
				best = m.outcome(a, cost, fmt.Sprintf("batches by speed in %s; %s", pieces(rounds), m.bottleneck(cost)))
			}
			break
		}
	}
	if !best.Fits() {
		return Outcome{}, closest
	}
	return best, nil
}

// bySpeed gives every rank the batch that it computes in the time of the
// others, cut into rounds.
func (m *model) bySpeed(rounds int, policy Policy) Allocation {
	weights, total := m.weights(0), m.problem.GlobalBatch
	times := make([][]float64, len(m.kinds)) // by kind and batch, as far as asked
	at := func(k, batch int) float64 {
		for b := len(times[k]); b <= batch; b++ {
			times[k] = append(times[k], m.roundsMs(m.kinds[k], b, rounds, policy, weights))
		}
		return times[k][batch]
	}
	most := func(k int, limit float64) int { // the largest batch within the limit
		low, high := 0, total
		for low < high {
			if mid := (low + high + 1) / 2; at(k, mid) <= limit {
				low = mid
			} else {
				high = mid - 1
			}
		}
		return low
	}
	low, high := 0.0, 0.0
	for k := range m.kinds {
		high = max(high, at(k, total))
	}
	for range 60 {
		mid, sum := (low+high)/2, 0
		for k := range m.kinds {
			sum += most(k, mid) * len(m.kinds[k].ranks)
		}
		if sum >= total {
			high = mid
		} else {
			low = mid
		}
	}
	batches, sum := make([]int, len(m.kindOf)), 0
	for rank, k := range m.kindOf {
		batches[rank] = most(k, high)
		sum += batches[rank]
	}
	for ; sum > total; sum-- { // the slowest gives back; of equals the last
		slowest := -1
		for rank, k := range m.kindOf {
			if batches[rank] > 0 && (slowest < 0 || at(k, batches[rank]) >= at(m.kindOf[slowest], batches[slowest])) {
				slowest = rank
			}
		}
		batches[slowest]--
	}
	a := Allocation{Shares: EvenShares, Ordinary: true}
	for rank, batch := range batches {
		a.Ranks = append(a.Ranks, RankAllocation{Batch: batch, MicroBatches: inRounds(batch, rounds), StatePPM: evenPPM(rank, len(batches)), Activations: policy})
	}
	return a
}

// inRounds cuts a batch into so many parts that differ by one at most.
func inRounds(batch, rounds int) []int {
	out := []int{}
	for round := range min(batch, rounds) {
		size := batch / rounds
		if round < batch%rounds {
			size++
		}
		out = append(out, size)
	}
	return out
}

func (m *model) roundsMs(k *kind, batch, rounds int, policy Policy, weights []float64) float64 {
	sum := 0.0
	for _, c := range cutsOf(inRounds(batch, rounds)) {
		for d, t := range m.loadOf(k, c.size, []cut{{c.size, 1}}, policy).times {
			sum += float64(c.count) * weights[d] * t
		}
	}
	return sum
}
