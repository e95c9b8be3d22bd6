package show

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/solver"
)

// Plan is the table of a plan with its bottleneck and its alternatives. names are the
// devices' names by rank; where there is none the plan's own word stands. byHand says that
// the batches were given.
func Plan(p solver.Plan, names []string, byHand bool) string {
	header := []string{"rank", "device", "activations", "batch", "microbatches", "state", "forward", "backward", "memory", "usable"}
	var rows [][]string
	for i, r := range p.Ranks {
		rows = append(rows, []string{
			number(r.Rank), nameOf(names, i, r.Device), activations(r), number(r.Batch), microbatchesOf(r), share(r.StatePPM),
			Ms(r.Predicted.ForwardMs), Ms(r.Predicted.BackwardMs), Bytes(r.Predicted.MemoryBytes), Bytes(r.Predicted.UsableMemoryBytes),
		})
	}
	var b strings.Builder
	what := p.Strategy
	if byHand {
		what = "batches by hand"
	}
	fmt.Fprintf(&b, "plan: %s, global batch %d, %s shares of the training state%s\n", what, p.GlobalBatch, p.Shares, exceptions(p))
	b.WriteString(table(header, rows, 3))
	if slices.ContainsFunc(p.Ranks, shownOne) {
		fmt.Fprintf(&b, "%s: no samples of the step; it computes one that weighs nothing\n", weighsNothing)
	}
	fmt.Fprintf(&b, "predicted: %s per step, %s samples/s; %s\n",
		Ms(p.Predicted.IterationMs), rate(p.Predicted.SamplesPerSecond), p.Predicted.Bottleneck)
	for _, a := range p.Alternatives {
		if a.IterationMs > 0 {
			fmt.Fprintf(&b, "instead, %s: %s per step; %s\n", a.Strategy, Ms(a.IterationMs), a.Reason)
		} else {
			fmt.Fprintf(&b, "instead, %s: does not fit; %s\n", a.Strategy, a.Reason)
		}
	}
	return b.String()
}

// activations is the policy of a rank, and what it keeps all the same.
func activations(r solver.RankPlan) string {
	out := string(r.Activations)
	for _, class := range slices.Sorted(maps.Keys(r.KeptUnits)) {
		if n := r.KeptUnits[class]; n > 0 {
			out += fmt.Sprintf(", %d of %s kept", n, class)
		}
	}
	return out
}

// exceptions names the classes whose shares are not those of the table.
func exceptions(p solver.Plan) string {
	if len(p.Ranks) == 0 || len(p.Ranks[0].ClassStatePPM) == 0 {
		return ""
	}
	classes := slices.Sorted(maps.Keys(p.Ranks[0].ClassStatePPM))
	for i, class := range classes {
		least, most := p.Ranks[0].ClassStatePPM[class], 0
		for _, r := range p.Ranks {
			least, most = min(least, r.ClassStatePPM[class]), max(most, r.ClassStatePPM[class])
		}
		classes[i] += ": even"
		if most-least > 1 { // even shares differ by what cannot be divided
			classes[i] = fmt.Sprintf("%s: %s to %s", class, share(least), share(most))
		}
	}
	return ", except " + strings.Join(classes, ", ")
}

func nameOf(names []string, i int, otherwise string) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return otherwise
}

// weighsNothing stands for the sample that a script without samples is shown.
const weighsNothing = "(1)"

// shownOne says that a rank computes although it has no samples.
func shownOne(r solver.RankPlan) bool {
	return r.Batch == 0 && r.Predicted.ForwardMs+r.Predicted.BackwardMs > 0
}

func microbatchesOf(r solver.RankPlan) string {
	if shownOne(r) {
		return weighsNothing
	}
	return microbatches(r.MicroBatches)
}

// microbatches writes 7,7,7,6 as "3x7+6".
func microbatches(sizes []int) string {
	if len(sizes) == 0 {
		return none
	}
	var parts []string
	for i := 0; i < len(sizes); {
		n := i
		for n < len(sizes) && sizes[n] == sizes[i] {
			n++
		}
		if n-i > 1 {
			parts = append(parts, fmt.Sprintf("%dx%d", n-i, sizes[i]))
		} else {
			parts = append(parts, number(sizes[i]))
		}
		i = n
	}
	return strings.Join(parts, "+")
}
