package orchestrator

import (
	"fmt"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// Wishes are what the user asks of a plan beside the global batch.
type Wishes struct {
	// Auto chooses the global batch with the most samples per second.
	Auto bool
	// Batches are the ranks' batches by hand; nil leaves them to the planner.
	Batches []int
	// UseAll gives every device at least one sample.
	UseAll bool
}

// batchByHand is the global batch that the wishes and --global-batch give, 0 if none.
func (s Spec) batchByHand() (batch int, why string, err error) {
	if s.Wishes.Batches == nil {
		return s.GlobalBatch, "--global-batch", nil
	}
	sum := 0
	for _, b := range s.Wishes.Batches {
		sum += b
	}
	switch {
	case s.Wishes.Auto:
		return 0, "", usage("--batches and --global-batch auto: the batches' sum is the global batch, so there is nothing to choose")
	case s.GlobalBatch > 0 && s.GlobalBatch != sum:
		return 0, "", usage("--batches sum to %d, and --global-batch is %d", sum, s.GlobalBatch)
	}
	return sum, "the sum of --batches", nil
}

// batchForEach refuses batches by hand for another number of devices.
func (s Spec) batchForEach(devices int) error {
	if n := len(s.Wishes.Batches); n > 0 && n != devices {
		return usage("--batches gives %s, and there %s: give one for each, such as %s", batchesGiven(n), areDevices(devices), exampleBatches(devices))
	}
	return nil
}

func batchesGiven(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

func areDevices(n int) string {
	if n == 1 {
		return "is 1 device"
	}
	return fmt.Sprintf("are %d devices", n)
}

// exampleBatches is what such a list looks like.
func exampleBatches(devices int) string {
	if devices > 8 {
		return "4,4,..."
	}
	return strings.TrimSuffix(strings.Repeat("4,", devices), ",")
}

// solve makes the plan of a profile, and the curve of the batches that it was chosen
// from. With Wishes.Auto the batch is only where to start.
func (s Spec) solve(p profiler.Profile, batch int) (solver.Plan, solver.Problem, []solver.BatchPoint, error) {
	problem, err := s.problem(p, batch)
	if err != nil {
		return solver.Plan{}, solver.Problem{}, nil, err
	}
	if !s.Wishes.Auto {
		plan, err := Solve(problem, s.Strategy)
		return plan, problem, nil, err
	}
	plan, curve, err := solver.SolveAuto(problem, MostBatch(len(problem.Devices)))
	if err != nil {
		return solver.Plan{}, solver.Problem{}, curve, err
	}
	problem.GlobalBatch = plan.GlobalBatch
	if s.Strategy == Even {
		plan, err = Solve(problem, Even)
	}
	return plan, problem, curve, err
}

// problem is ProblemOf with the wishes.
func (s Spec) problem(p profiler.Profile, batch int) (solver.Problem, error) {
	problem, err := ProblemOf(p, batch)
	if err != nil {
		return solver.Problem{}, err
	}
	if err := s.batchForEach(len(problem.Devices)); err != nil {
		return solver.Problem{}, err
	}
	if s.Wishes.Batches != nil {
		problem.FixedBatches = s.Wishes.Batches
	}
	problem.UseAll = s.Wishes.UseAll
	if err := problem.Validate(); err != nil {
		return solver.Problem{}, usage("%w", err)
	}
	return problem, nil
}

// ProblemOfPlan is the problem that a plan answers.
func ProblemOfPlan(p Planned, s Spec) (solver.Problem, error) {
	return s.problem(p.Profile, p.Plan.GlobalBatch)
}

// MostBatch is the largest global batch that is looked at when it is to be chosen.
func MostBatch(devices int) int { return min(16384, 256*devices) }
