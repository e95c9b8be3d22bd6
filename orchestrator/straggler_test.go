package orchestrator

import (
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

// User case 9: all ranks show a step of 292 ms, because the fast ones wait for the slow
// one. Own compute names it.
func TestUserCase9TheSlowRankIsNamedAndNotItsVictims(t *testing.T) {
	plan := solver.Plan{}
	for range 3 {
		plan.Ranks = append(plan.Ranks, solver.RankPlan{Predicted: solver.RankPrediction{ForwardMs: 30, BackwardMs: 60}})
	}
	s := newStragglers(plan)
	run := func(slow float64) (found []straggler) {
		for range stragglerSteps {
			found = append(found, s.add(show.Step{Ms: 292, Ranks: []show.RankStep{
				{ComputeMs: 92, WaitMs: 200}, {ComputeMs: slow, WaitMs: 292 - slow}, {ComputeMs: 90, WaitMs: 202}}})...)
		}
		return found
	}
	found := run(291)
	if len(found) != 1 || found[0].rank != 1 || found[0].overMs < 190 || found[0].overMs > 210 {
		t.Errorf("found %+v", found)
	}
	if again := run(291); len(again) != 0 {
		t.Errorf("named twice: %+v", again)
	}
	if even := run(91); len(even) != 0 {
		t.Errorf("named without reason: %+v", even)
	}
	if again := run(291); len(again) != 1 {
		t.Errorf("not named again: %+v", again)
	}
}
