package solver

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// With a script every rank has a sample wherever a plan with one for each fits, and the
// fastest of these is the plan: the numbers beside it (the batches to choose from, the
// strategies, what would be if) are of such plans too.
func TestAScriptHasSamplesOnEveryRankWherePossible(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	changed, impossible := 0, 0
	for range 2000 {
		p := randomProblem(r)
		p.ShownOne, p.UseAll, p.FixedBatches = true, false, nil
		want, err := Solve(p.withAll())
		if p.GlobalBatch < len(p.Devices) {
			err = errors.New("fewer samples than devices")
		}
		got, gotErr := Solve(p)
		if err != nil {
			if gotErr == nil && !got.Allocation().hasIdle() {
				t.Fatalf("a plan with samples for all, which %v rules out: %+v", err, got.Ranks)
			}
			impossible++
			continue
		}
		if gotErr != nil || !reflect.DeepEqual(got.Ranks, want.Ranks) {
			t.Fatalf("%v: %+v, want %+v", gotErr, got.Ranks, want.Ranks)
		}
		ms := got.Predicted.IterationMs
		row, err := cephalo{}.Predict(p)
		if err != nil || tidy(row.IterationMs) != ms {
			t.Fatalf("%v: compared %v ms, planned %v ms", err, row.IterationMs, ms)
		}
		_, curve, err := SolveAuto(p, p.GlobalBatch)
		if at := curve[len(curve)-1]; err != nil || at.GlobalBatch != p.GlobalBatch || at.IterationMs != ms {
			t.Fatalf("%v: the curve has %+v, planned %v ms", err, at, ms)
		}
		free := p
		free.ShownOne = false
		if other, err := Solve(free); err == nil && other.Allocation().hasIdle() {
			changed++
		}
		if len(p.Devices) < 2 {
			continue
		}
		fewer, err := p.Without(0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := newModel(p)
		if err != nil {
			t.Fatal(err)
		}
		ask := &whatIf{m: m, nowMs: ms, allBusy: true}
		found, err := ask.solve(fewer, math.Inf(1))
		plan, none := Solve(fewer)
		if err != nil || (found == nil) != (none != nil) {
			t.Fatalf("%v: left out %v, planned without it: %v", err, found, none)
		}
		if found != nil && tidy(found.bestMs) < plan.Predicted.IterationMs {
			t.Fatalf("left out %v ms, planned without it %v ms", found.bestMs, plan.Predicted.IterationMs)
		}
	}
	if changed < 50 || impossible < 50 {
		t.Errorf("%d problems in which the rule changes the plan, %d in which it cannot hold", changed, impossible)
	}
}
