package templates

import (
	"fmt"
	"slices"
	"strings"
)

// Size of the loss curve in the page, in its own units.
const (
	curveWidth  = 600.0
	curveHeight = 200.0
)

// curve is the losses as the points of an SVG line; empty for fewer than two.
func curve(losses []float64) string {
	if len(losses) < 2 {
		return ""
	}
	low, high := slices.Min(losses), slices.Max(losses)
	span := high - low
	if span == 0 {
		span = 1
	}
	points := make([]string, len(losses))
	for i, loss := range losses {
		x := curveWidth * float64(i) / float64(len(losses)-1)
		y := curveHeight * (high - loss) / span
		points[i] = fmt.Sprintf("%.1f,%.1f", x, y)
	}
	return strings.Join(points, " ")
}
