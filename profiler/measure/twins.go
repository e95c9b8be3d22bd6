package measure

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
)

// tolerance is how far a device may be from its twins, and repeated
// measurements from each other, before it is worth a sentence.
const tolerance = 0.10

// compareTwins names devices that ought to be alike and are not: the same
// model under the same limits, yet more than 10 % away from the others. Each
// keeps its own costs; the plan follows what was measured.
func compareTwins(devices []profiler.Device, p profiler.Profile) []string {
	groups := map[string][]int{}
	var order []string
	for i := range p.Devices {
		k := twinKey(devices[i])
		if _, ok := groups[k]; !ok {
			order = append(order, k)
		}
		groups[k] = append(groups[k], i)
	}
	var notes []string
	for _, k := range order {
		ranks := groups[k]
		m := commonMicrobatch(p, ranks)
		for _, i := range ranks {
			if note := compare(devices, p, ranks, i, m); note != "" {
				notes = append(notes, note)
			}
		}
	}
	return notes
}

// compare is the sentence about device i, or nothing. Of two, only the slower
// one is named; among more, one that is faster than the middle is odd too.
func compare(devices []profiler.Device, p profiler.Profile, ranks []int, i int, m float64) string {
	var all []float64
	for _, j := range ranks {
		all = append(all, modelMs(p, j, m))
	}
	own, usual := modelMs(p, i, m), median(all)
	if len(ranks) == 2 {
		usual = min(all[0], all[1])
	}
	if usual <= 0 || math.Abs(own/usual-1) <= tolerance {
		return ""
	}
	off, word := own/usual-1, "longer"
	if off < 0 {
		off, word = -off, "less"
	}
	return fmt.Sprintf("rank %d (%s) takes %.0f %% %s than its like: %.1f ms against %.1f ms for a microbatch of %.0f; the plan uses what was measured",
		p.Devices[i].Rank, devices[i].Label(), 100*off, word, own, usual, m)
}

func twinKey(d profiler.Device) string {
	return fmt.Sprintf("%s|%s|%s|%d|%g|%d", d.Kind, firstText(d.Model, d.Name), d.Capability, d.SMPercent, max(1, d.Slowdown), d.Threads)
}

// commonMicrobatch is the largest microbatch that all of them measured for
// every unit.
func commonMicrobatch(p profiler.Profile, ranks []int) float64 {
	least := math.Inf(1)
	for _, i := range ranks {
		for _, u := range p.Model.Units {
			c := p.Devices[i].Costs[u.Class]
			for _, cost := range []profiler.Cost{c.ForwardMs, c.BackwardMs} {
				least = min(least, cost.Points[len(cost.Points)-1][0])
			}
		}
	}
	return least
}

// modelMs is what all units take, forward and backward, for one microbatch.
func modelMs(p profiler.Profile, i int, m float64) float64 {
	total := 0.0
	for _, u := range p.Model.Units {
		c := p.Devices[i].Costs[u.Class]
		total += float64(u.Count) * (c.ForwardMs.At(m) + c.BackwardMs.At(m))
	}
	return total
}

func median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// spreadNotes names, in one sentence, the measurements that would not settle.
func spreadNotes(measurements []Measurement) []string {
	var classes, ranks []string
	worst := 0.0
	for _, m := range measurements {
		noisy := false
		for _, u := range m.Model.Units {
			if s := m.Spread[u.Class]; s > tolerance {
				noisy, worst = true, max(worst, s)
				if !slices.Contains(classes, u.Class) {
					classes = append(classes, u.Class)
				}
			}
		}
		if noisy {
			ranks = append(ranks, fmt.Sprintf("%d (%s)", m.Rank, m.Device.Name))
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("repeated measurements of %s differ by up to %.0f %% on rank %s: predictions are rough",
		strings.Join(classes, ", "), 100*worst, strings.Join(ranks, ", "))}
}
