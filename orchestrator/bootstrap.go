package orchestrator

import (
	"slices"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// bootstrap is the plan of a profiling run, made before anything is known of the
// model: one sample on every rank, and state in proportion to memory, so that a model
// that fits the devices together can be built at all.
func bootstrap(devices []profiler.Device) solver.Plan {
	memory := make([]int64, len(devices))
	for i, d := range devices {
		memory[i] = max(0, d.UsableMemoryBytes)
	}
	plan := solver.Plan{
		Version: solver.PlanVersion, Strategy: "bootstrap", GlobalBatch: len(devices),
		Shares: solver.RaggedShares, Alternatives: []solver.Alternative{},
	}
	for i, ppm := range apportion(memory, solver.TotalPPM) {
		plan.Ranks = append(plan.Ranks, solver.RankPlan{
			Rank: i, Device: devices[i].UUID, Batch: 1, MicroBatches: []int{1},
			StatePPM: ppm, Activations: solver.Recompute,
			Predicted: solver.RankPrediction{UsableMemoryBytes: memory[i]},
		})
	}
	return plan
}

// apportion divides total in proportion to the weights, in whole numbers that sum to
// it: largest remainders first, ties to the lower index. Without any weight it
// divides evenly.
func apportion(weights []int64, total int) []int {
	sum := 0.0
	for _, w := range weights {
		sum += float64(w)
	}
	parts, rest := make([]int, len(weights)), make([]float64, len(weights))
	left := total
	order := make([]int, len(weights))
	for i, w := range weights {
		exact := float64(total) / float64(len(weights))
		if sum > 0 {
			exact = float64(total) * (float64(w) / sum)
		}
		parts[i] = int(exact)
		rest[i] = exact - float64(parts[i])
		left -= parts[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case rest[a] > rest[b]:
			return -1
		case rest[a] < rest[b]:
			return 1
		default:
			return 0
		}
	})
	for _, i := range order[:left] {
		parts[i]++
	}
	return parts
}
