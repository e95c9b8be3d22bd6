package orchestrator

import (
	"math"
	"slices"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

const (
	// driftShare is by how much a rank must be off what its part should take beside the
	// others, in every window, to count as lastingly slow or fast.
	driftShare = 1.1
	// A rank whose numbers are off by more than this was measured wrongly, not planned so.
	mostDrift = 10
)

// drift notices ranks that lastingly compute for longer, or shorter, than the plan expects
// beside the others. An outlier, or what comes and goes, begins the count anew.
type drift struct {
	after    int       // for how many steps in a row; 0: never
	expected []float64 // compute of a step by the plan, by rank; 0: it does not count
	recent   []show.Step
	// inRow is for how many steps a rank has been off: slow above zero, fast below.
	inRow  []int
	ratios [][]float64 // measured by expected, of each window since any rank is off
}

func newDrift(plan solver.Plan, after int) *drift {
	d := &drift{after: after, expected: expectedCompute(plan)}
	d.inRow = make([]int, len(d.expected))
	return d
}

// expectedCompute is what each rank computes in a step by the plan.
func expectedCompute(plan solver.Plan) []float64 {
	var all []float64
	for _, r := range plan.Ranks {
		all = append(all, r.Predicted.ForwardMs+r.Predicted.BackwardMs)
	}
	return all
}

// add takes a step. Once a rank has been off for long enough it returns, for every rank,
// by how much longer than planned it computes, and the rank that is off most.
func (d *drift) add(step show.Step) (factors []float64, rank int, lasting bool) {
	if d.after <= 0 || len(step.Ranks) != len(d.expected) || len(d.expected) < 2 {
		return nil, 0, false
	}
	d.recent = append(d.recent, step)
	if len(d.recent) < min(stragglerSteps, d.after) {
		return nil, 0, false
	}
	steps := d.recent
	d.recent = nil
	window := ratiosOf(steps, d.expected)
	off := false
	for i := range window {
		d.inRow[i] = inRow(d.inRow[i], besideOthers(window, i), len(steps))
		off = off || d.inRow[i] != 0
	}
	if !off {
		d.ratios = nil
		return nil, 0, false
	}
	d.ratios = append(d.ratios, window)
	if !slices.ContainsFunc(d.inRow, func(n int) bool { return max(n, -n) >= d.after }) {
		return nil, 0, false
	}
	factors = d.factors()
	usual := middle(slices.Clone(factors))
	for i, f := range factors {
		if math.Abs(math.Log(f/usual)) > math.Abs(math.Log(factors[rank]/usual)) {
			rank = i
		}
	}
	d.ratios, d.inRow = nil, make([]int, len(d.expected))
	return factors, rank, true
}

// inRow goes on counting, or begins anew.
func inRow(before int, over float64, steps int) int {
	switch {
	case over > driftShare:
		return max(before, 0) + steps
	case over > 0 && over < 1/driftShare:
		return min(before, 0) - steps
	}
	return 0
}

// factors are the medians of the windows; a rank that does not count has the middle one.
func (d *drift) factors() []float64 {
	out := make([]float64, len(d.expected))
	var known []float64
	for i := range out {
		var values []float64
		for _, window := range d.ratios {
			if window[i] > 0 {
				values = append(values, window[i])
			}
		}
		if len(values) > 0 {
			out[i] = min(mostDrift, max(1.0/mostDrift, middle(values)))
			known = append(known, out[i])
		}
	}
	for i := range out {
		if out[i] == 0 {
			out[i] = middle(slices.Clone(known))
		}
	}
	return out
}

// ratiosOf is what each rank computed in the median, by what was expected; 0 for a rank
// without a part.
func ratiosOf(steps []show.Step, expected []float64) []float64 {
	out := make([]float64, len(expected))
	for i, e := range expected {
		if e > 0 {
			out[i] = medianOf(steps, func(st show.Step) float64 { return st.Ranks[i].ComputeMs }) / max(e, 1e-3)
		}
	}
	return out
}

// besideOthers is a rank's ratio by the median of the others'; 0 when there are none.
func besideOthers(ratios []float64, rank int) float64 {
	var others []float64
	for i, r := range ratios {
		if i != rank && r > 0 {
			others = append(others, r)
		}
	}
	if len(others) == 0 || ratios[rank] <= 0 {
		return 0
	}
	if over := ratios[rank] / middle(others); !math.IsInf(over, 0) {
		return over
	}
	return 0
}
