package solver

import "errors"

// Even is the best plan that stock FSDP can run with layered accumulation:
// equal batches, equal shares, one microbatch size and one activation policy
// for all ranks. Ordinary accumulation is its alternative. Batches that are
// set by hand are not looked at.
func Even(p Problem) (Plan, error) {
	m, err := newModel(p)
	if err != nil {
		return Plan{}, err
	}
	a, _, err := m.even(false)
	if err != nil {
		return Plan{}, err
	}
	plan, err := m.plan(StrategyEven, a)
	if err != nil {
		return Plan{}, err
	}
	plan.Alternatives = []Alternative{m.alternative(StrategyEvenOrdinary, m.evenRun(true), plan.Predicted.IterationMs)}
	return plan, nil
}

// EvenOrdinary is the best plan that stock FSDP can run with ordinary gradient
// accumulation: as Even, but every microbatch goes through the whole model
// before the next and gathers all parameters again.
func EvenOrdinary(p Problem) (Plan, error) {
	m, err := newModel(p)
	if err != nil {
		return Plan{}, err
	}
	a, _, err := m.even(true)
	if err != nil {
		return Plan{}, err
	}
	return m.plan(StrategyEvenOrdinary, a)
}

// even tries every number of microbatches and every policy.
func (m *model) even(ordinary bool) (Allocation, Prediction, error) {
	var best Allocation
	var bestCost Prediction
	var closest *InfeasibleError
	found := false
	ranks := len(m.kindOf)
	most := (m.problem.GlobalBatch + ranks - 1) / ranks
	for _, size := range balancedSizes(most) {
		for _, policy := range m.policies {
			a := m.evenAllocation(size, policy, ordinary)
			cost, err := m.evaluate(a)
			var none *InfeasibleError
			switch {
			case errors.As(err, &none):
				if closest == nil || none.MissingBytes < closest.MissingBytes {
					closest = none
				}
			case err != nil:
				return Allocation{}, Prediction{}, err
			case !found || cost.IterationMs < bestCost.IterationMs*(1-tolerance):
				best, bestCost, found = a, cost, true
			}
		}
	}
	if !found {
		return Allocation{}, Prediction{}, closest
	}
	return best, bestCost, nil
}

// balancedSizes are the microbatch sizes that cut n into 1, 2, 3, ... pieces,
// largest first.
func balancedSizes(n int) []int {
	sizes := []int{n}
	for size := n; size > 1; {
		pieces := (n-1)/(size-1) + 1 // the fewest pieces smaller than size
		size = (n + pieces - 1) / pieces
		sizes = append(sizes, size)
	}
	return sizes
}

func (m *model) evenAllocation(size int, policy Policy, ordinary bool) Allocation {
	ranks := len(m.kindOf)
	a := Allocation{Shares: EvenShares, Ordinary: ordinary}
	for rank := range ranks {
		batch := m.problem.GlobalBatch / ranks
		if rank < m.problem.GlobalBatch%ranks {
			batch++
		}
		o := option{batch: batch, micro: min(size, batch)}
		a.Ranks = append(a.Ranks, RankAllocation{Batch: batch, MicroBatches: o.microBatches(), StatePPM: evenPPM(rank, ranks), Activations: policy})
	}
	return a
}
