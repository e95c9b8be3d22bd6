package show

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// Profile is what a model costs on each device, at the largest measured microbatch.
func Profile(p profiler.Profile, path string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s: %d parameters, %g bytes of state each\n", p.Model.Name, p.Model.Parameters, p.Model.StateBytesPerParameter)
	header := []string{"rank", "device", "unit", "count", "samples", "forward", "backward", "memory"}
	var rows [][]string
	for _, d := range p.Devices {
		for _, u := range p.Model.Units {
			c := d.Costs[u.Class]
			m := 1.0
			if n := len(c.ForwardMs.Points); n > 0 {
				m = c.ForwardMs.Points[n-1][0]
			}
			rows = append(rows, []string{number(d.Rank), d.Name, u.Class, number(u.Count), fmt.Sprint(m),
				Ms(c.ForwardMs.At(m)), Ms(c.BackwardMs.At(m)), Bytes(int64(c.MemoryBytes.At(m)))})
		}
	}
	b.WriteString(table(header, rows, 3))
	for _, u := range p.Model.Units {
		c := p.Collectives[u.Class]
		fmt.Fprintf(&b, "collectives of one %s: gather %s, reduce %s\n", u.Class, Ms(c.AllGatherMs), Ms(c.ReduceScatterMs))
	}
	fmt.Fprintf(&b, "profile: %s\n", path)
	return b.String()
}

// Explanation says why a plan is as it is.
func Explanation(e solver.Explanation) string {
	var b strings.Builder
	for i := 0; i < len(e.Ranks); {
		n := i + 1
		for n < len(e.Ranks) && because(e.Ranks[n]) == because(e.Ranks[i]) {
			n++
		}
		who := fmt.Sprintf("rank %d", i)
		if n > i+1 {
			who = fmt.Sprintf("ranks %d to %d", i, n-1)
		}
		b.WriteString(who + because(e.Ranks[i]) + "\n")
		i = n
	}
	for _, sentence := range append(e.Unused, e.NextBest, e.Help) {
		if sentence != "" {
			b.WriteString(sentence + "\n")
		}
	}
	return b.String()
}

// because is what limits a rank, and how long it waits.
func because(r solver.RankExplanation) string {
	return fmt.Sprintf(" (%s): limited by %s, idle %.0f %% of the step: %s", r.Device, r.Limit, 100*r.IdleShare, r.Why)
}

// Table lays out columns, the first left of them to the left.
func Table(header []string, rows [][]string, left int) string { return table(header, rows, left) }

// TableOf lays out columns, those that are named to the left and the others to the right.
func TableOf(header []string, rows [][]string, left ...int) string {
	return lay(header, rows, func(column int) bool { return slices.Contains(left, column) })
}
