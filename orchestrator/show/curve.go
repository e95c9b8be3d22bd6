package show

import (
	"strings"

	"github.com/cephalorun/cephalorun/solver"
)

// Curve is samples per second by global batch, with a bar for each.
func Curve(points []solver.BatchPoint) string {
	const longest = 40
	most := 0.0
	for _, p := range points {
		most = max(most, p.SamplesPerSecond)
	}
	var rows [][]string
	for _, p := range points {
		if p.IterationMs == 0 {
			rows = append(rows, []string{number(p.GlobalBatch), none, none, "does not fit"})
			continue
		}
		bar := ""
		if most > 0 {
			bar = strings.Repeat("#", int(longest*p.SamplesPerSecond/most+0.5))
		}
		rows = append(rows, []string{number(p.GlobalBatch), rate(p.SamplesPerSecond), Ms(p.IterationMs), bar})
	}
	return tableLast([]string{"global batch", "samples/s", "step", ""}, rows)
}
