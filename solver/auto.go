package solver

import "errors"

// BatchPoint is one point of the curve of samples per second against the
// global batch. IterationMs is 0 where nothing fits.
type BatchPoint struct {
	GlobalBatch      int
	IterationMs      float64
	SamplesPerSecond float64
}

// worthwhile is how much more samples per second a larger batch must bring.
const worthwhile = 0.01

// SolveAuto chooses the global batch: the smallest whose samples per second
// come within 1 % of the best of all batches up to most. It tries 1, 2, 3, 4,
// 6, 8, 12, ... and most itself, and returns the plan and the curve. The
// problem's own GlobalBatch is not looked at; FixedBatches must be nil.
func SolveAuto(p Problem, most int) (Plan, []BatchPoint, error) {
	if p.FixedBatches != nil {
		return Plan{}, nil, errors.New("choose global batch: batches are set by hand, so their sum is the global batch")
	}
	var curve []BatchPoint
	var first error
	best := 0.0
	for _, batch := range batchGrid(most) {
		p.GlobalBatch = batch
		m, err := newModel(p)
		if err != nil {
			return Plan{}, nil, err
		}
		a, err := m.solve()
		var none *InfeasibleError
		if errors.As(err, &none) {
			if first == nil {
				first = err
			}
			curve = append(curve, BatchPoint{GlobalBatch: batch})
			continue
		}
		if err != nil {
			return Plan{}, nil, err
		}
		cost, err := m.evaluate(a)
		if err != nil {
			return Plan{}, nil, err
		}
		curve = append(curve, BatchPoint{batch, tidy(cost.IterationMs), tidy(cost.SamplesPerSecond)})
		best = max(best, cost.SamplesPerSecond)
	}
	for _, point := range curve {
		if point.IterationMs > 0 && point.SamplesPerSecond >= best*(1-worthwhile) {
			p.GlobalBatch = point.GlobalBatch
			plan, err := Solve(p)
			return plan, curve, err
		}
	}
	if first == nil {
		first = errors.New("choose global batch: every batch takes no time at all, so none is best")
	}
	return Plan{}, curve, first
}

// batchGrid is 1, 2, 3, 4, 6, 8, 12, ... up to most, and most.
func batchGrid(most int) []int {
	grid := []int{1}
	for power := 2; power < most; power *= 2 {
		grid = append(grid, power)
		if half := power + power/2; half < most {
			grid = append(grid, half)
		}
	}
	if most > 1 {
		grid = append(grid, most)
	}
	return grid
}
