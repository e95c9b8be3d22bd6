package measure

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/cephalorun/cephalorun/profiler"
)

// tailPoints is how many of the last points the line is fitted to. Few, since
// small microbatches are bound by launch overhead and say nothing about large
// ones; more than two, to even out noise.
const tailPoints = 4

// FitCost makes a cost of measured points [microbatch, value]: sorted, with a
// tail for larger microbatches. The tail is the least-squares line through the
// last four points (through the origin when there is only one), with a slope
// of at least 0, raised if need be so that it does not start below the last
// point: a prediction never falls where the measurements did not.
func FitCost(points [][2]float64) (profiler.Cost, error) {
	if len(points) == 0 {
		return profiler.Cost{}, fmt.Errorf("has no measured points")
	}
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
	for i, p := range sorted {
		if p[0] < 1 || p[0] != math.Trunc(p[0]) || p[0] > math.MaxInt32 {
			return profiler.Cost{}, fmt.Errorf("has microbatch %v, must be a whole number from 1 on", p[0])
		}
		if i > 0 && p[0] == sorted[i-1][0] {
			return profiler.Cost{}, fmt.Errorf("has two values for microbatch %v", p[0])
		}
		if p[1] < 0 || math.IsNaN(p[1]) || math.IsInf(p[1], 0) {
			return profiler.Cost{}, fmt.Errorf("has %v for microbatch %v, must be 0 or more", p[1], p[0])
		}
	}
	return profiler.Cost{Points: sorted, Tail: fitTail(sorted[max(0, len(sorted)-tailPoints):])}, nil
}

// AtLeast is the cost with its points raised to a value, and the line beyond them raised with
// the last. Its slope stays: that of raised points would say nothing about larger microbatches.
func AtLeast(c profiler.Cost, least float64) profiler.Cost {
	for i := range c.Points {
		c.Points[i][1] = max(c.Points[i][1], least)
	}
	if n := len(c.Points); n > 0 {
		last := c.Points[n-1]
		c.Tail.Intercept = max(c.Tail.Intercept, last[1]-c.Tail.Slope*last[0])
	}
	return c
}

func fitTail(points [][2]float64) profiler.Tail {
	last := points[len(points)-1]
	if len(points) == 1 {
		return profiler.Tail{Slope: last[1] / last[0]}
	}
	slope, intercept := leastSquares(points)
	if slope < 0 {
		slope, intercept = 0, 0
		for _, p := range points {
			intercept = max(intercept, p[1])
		}
	}
	return profiler.Tail{Slope: slope, Intercept: max(intercept, last[1]-slope*last[0])}
}

func leastSquares(points [][2]float64) (slope, intercept float64) {
	n := float64(len(points))
	var meanX, meanY float64
	for _, p := range points {
		meanX += p[0] / n
		meanY += p[1] / n
	}
	var xy, xx float64
	for _, p := range points {
		xy += (p[0] - meanX) * (p[1] - meanY)
		xx += (p[0] - meanX) * (p[0] - meanX)
	}
	slope = xy / xx
	return slope, meanY - slope*meanX
}
