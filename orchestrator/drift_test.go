package orchestrator

import (
	"math"
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

// User case 71: which series of step times count as a lasting drift.
func TestUserCase71WhatLasts(t *testing.T) {
	plan := solver.Plan{}
	for _, ms := range []float64{100, 100, 50, 0} {
		plan.Ranks = append(plan.Ranks, solver.RankPlan{Predicted: solver.RankPrediction{BackwardMs: ms}})
	}
	for name, c := range map[string]struct {
		// compute is what rank 1 computes in a step; the others take twice what is planned.
		compute func(step int) float64
		lasts   bool
		factor  float64
	}{
		"as planned":           {func(int) float64 { return 200 }, false, 0},
		"under a tenth":        {func(int) float64 { return 215 }, false, 0},
		"slow":                 {func(int) float64 { return 260 }, true, 2.6},
		"fast":                 {func(int) float64 { return 100 }, true, 1},
		"one outlier a window": {func(n int) float64 { return 200 + 9000*float64(1-min(1, n%20)) }, false, 0},
		"outliers in a drift":  {func(n int) float64 { return 260 + 9000*float64(1-min(1, n%20)) }, true, 2.6},
		"on and off":           {func(n int) float64 { return 200 + 100*float64(n/100%2) }, false, 0},
		"to and fro":           {func(n int) float64 { return 130 + 170*float64(n/100%2) }, false, 0},
		"hotter and hotter":    {func(n int) float64 { return 230 + float64(n)/10 }, true, 2.4},
	} {
		d := newDrift(plan, 200)
		var factors []float64
		rank, lasts := 0, false
		for n := 1; n <= 220 && !lasts || n <= 100; n++ {
			factors, rank, lasts = d.add(show.Step{Number: n, Ranks: []show.RankStep{{ComputeMs: 200}, {ComputeMs: c.compute(n)}, {ComputeMs: 100}, {ComputeMs: 7}}})
			if lasts && n < 200 {
				t.Errorf("%s: lasting after %d steps", name, n)
			}
		}
		if lasts != c.lasts {
			t.Errorf("%s: lasting %v", name, lasts)
		}
		if lasts && (rank != 1 || math.Abs(factors[1]-c.factor) > 0.05 || factors[0] != 2 || factors[2] != 2 || factors[3] != 2) {
			t.Errorf("%s: rank %d, factors %v", name, rank, factors)
		}
	}
}
