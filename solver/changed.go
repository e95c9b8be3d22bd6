package solver

import "fmt"

// changed is what the devices of a kind would do with more memory in place of what they
// do: more samples, or what they do for the others' sake.
func (m *model) changed(k *kind, before, after Allocation) string {
	was, would := k.samples(before), k.samples(after)
	together := ""
	if len(k.ranks) > 1 {
		together = " on them together"
	}
	if would > was {
		return fmt.Sprintf("%s in place of %d%s", count(would, "sample"), was, together)
	}
	words := otherwise(before.Ranks[k.ranks[0]], after.Ranks[k.ranks[0]])
	if would < was {
		words += fmt.Sprintf(" with %s in place of %d%s", count(would, "sample"), was, together)
	}
	return words + m.gaining(before, after)
}

// otherwise is what a rank would do otherwise, but for its samples.
func otherwise(old, now RankAllocation) string {
	switch {
	case now.StatePPM >= old.StatePPM+TotalPPM/1000:
		return fmt.Sprintf("%.1f %% of the state there in place of %.1f %%", float64(now.StatePPM)/1e4, float64(old.StatePPM)/1e4)
	case largest(now) > largest(old):
		return fmt.Sprintf("microbatch %d in place of %d", largest(now), largest(old))
	case now.Activations != old.Activations:
		return fmt.Sprintf("%s activations in place of %s", now.Activations, old.Activations)
	}
	return "another division"
}

// gaining names the kind that would get the most samples more.
func (m *model) gaining(before, after Allocation) string {
	most, words := 0, ""
	for _, k := range m.kinds {
		was, would := k.samples(before), k.samples(after)
		if would-was <= most {
			continue
		}
		who := m.device(k.ranks[0])
		if len(k.ranks) > 1 {
			who = fmt.Sprintf("the %d devices like %d (%s) together", len(k.ranks), k.ranks[0], label(k.device))
		}
		most, words = would-was, fmt.Sprintf(", and %s in place of %d on %s", count(would, "sample"), was, who)
	}
	return words
}

// samples of all devices of the kind.
func (k *kind) samples(a Allocation) int {
	sum := 0
	for _, rank := range k.ranks {
		sum += a.Ranks[rank].Batch
	}
	return sum
}

// largest is the largest microbatch of a rank.
func largest(r RankAllocation) int {
	most := 0
	for _, b := range r.MicroBatches {
		most = max(most, b)
	}
	return most
}
