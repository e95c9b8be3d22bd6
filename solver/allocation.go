package solver

import "fmt"

// raggedIn are the classes that an allocation divides unequally.
func (m *model) raggedIn(a Allocation) classes {
	var ragged classes
	if a.Shares == EvenShares {
		return 0
	}
	for class, u := range m.problem.Units {
		even := true // as far as it is named
		for rank, r := range a.Ranks {
			ppm, named := r.ClassStatePPM[u.Class]
			even = even && named && ppm == evenPPM(rank, len(a.Ranks))
		}
		if !even && m.state[class] > 0 {
			ragged |= 1 << class
		}
	}
	return ragged
}

// stateHeld is what a rank's shares weigh. Classes of one share are one piece,
// since every piece is rounded up.
func (m *model) stateHeld(r RankAllocation) int64 {
	sum := int64(0)
	for ppm, set := range m.byShare(r) {
		sum += part(m.stateIn(set), ppm)
	}
	return sum
}

// byShare are the classes that a rank has the same share of.
func (m *model) byShare(r RankAllocation) map[int]classes {
	byShare := map[int]classes{}
	for class, u := range m.problem.Units {
		ppm, named := r.ClassStatePPM[u.Class]
		if !named {
			ppm = r.StatePPM
		}
		byShare[ppm] |= 1 << class
	}
	return byShare
}

func (a Allocation) validate(p Problem) error {
	var f faults
	if a.Shares != EvenShares && a.Shares != RaggedShares {
		f.add("shares: want %q or %q, got %q", EvenShares, RaggedShares, a.Shares)
	}
	if len(a.Ranks) != len(p.Devices) {
		f.add("ranks: want one for each of the %d devices, got %d", len(p.Devices), len(a.Ranks))
	}
	batch := int64(0)
	var ranks []RankPlan
	for i, r := range a.Ranks {
		ranks = append(ranks, RankPlan{Rank: i, Device: "-", Batch: r.Batch, MicroBatches: r.MicroBatches, StatePPM: r.StatePPM,
			ClassStatePPM: r.ClassStatePPM, Activations: r.Activations, KeptUnits: r.KeptUnits})
		for _, class := range sortedKeys(r.KeptUnits) {
			if n := r.KeptUnits[class]; n > p.unitsOf(class) {
				f.add("ranks[%d].kept_units.%s: there are %d such units, got %d", i, class, p.unitsOf(class), n)
			}
		}
		ranks[i].validate(i, f.add)
		batch += int64(r.Batch)
	}
	if batch != int64(p.GlobalBatch) {
		f.add("ranks: batches sum to %d, want global_batch %d", batch, p.GlobalBatch)
	}
	validateShares(ranks, f.add)
	return f.join("allocation")
}

// unitsOf is how many units of a class there are.
func (p Problem) unitsOf(class string) int {
	for _, u := range p.Units {
		if u.Class == class {
			return u.Count
		}
	}
	return 0
}

// validateShares checks that all that is divided is divided wholly.
func validateShares(ranks []RankPlan, bad func(string, ...any)) {
	if len(ranks) == 0 {
		return
	}
	sum := int64(0)
	byClass := map[string]int64{}
	for i, r := range ranks {
		sum += int64(r.StatePPM)
		if len(r.ClassStatePPM) != len(ranks[0].ClassStatePPM) {
			bad("ranks[%d].class_state_ppm: names %d classes, and ranks[0] names %d", i, len(r.ClassStatePPM), len(ranks[0].ClassStatePPM))
		}
		for _, class := range sortedKeys(r.ClassStatePPM) {
			if ppm := r.ClassStatePPM[class]; ppm < 0 || ppm > TotalPPM {
				bad("%s: want 0 to %d, got %d", fmt.Sprintf("ranks[%d].class_state_ppm.%s", i, class), TotalPPM, ppm)
			}
			byClass[class] += int64(r.ClassStatePPM[class])
		}
	}
	if sum != TotalPPM {
		bad("ranks: state_ppm sum to %d, want %d", sum, TotalPPM)
	}
	for _, class := range sortedKeys(byClass) {
		if byClass[class] != TotalPPM {
			bad("ranks: class_state_ppm.%s sum to %d, want %d", class, byClass[class], TotalPPM)
		}
	}
}
