package solver

import (
	"math/rand/v2"
	"testing"
)

// TestKnapsackEqualsTryingAll draws small knapsacks with gaps between the
// batches and values that fall in no order, where rounding the relaxation
// fails and the dynamic program has to decide.
func TestKnapsackEqualsTryingAll(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	decided := 0
	for i := range 20000 {
		var groups []group
		for range 1 + r.IntN(3) {
			g := group{devices: 1 + r.IntN(3)}
			for b := r.IntN(3); b < 12; b += 1 + r.IntN(4) {
				g.choices = append(g.choices, choice{batch: b, value: r.IntN(40)})
			}
			groups = append(groups, g)
		}
		total := r.IntN(40)
		best := tryAll(groups, 0, 0, total)
		for _, need := range []int{0, best, best + 1} {
			k := &knapsack{groups: groups, total: total, need: max(0, need)}
			got, want := k.solve(), best >= max(0, need)
			if got != want {
				t.Fatalf("knapsack %d: solved is %v, want %v: %+v total %d need %d best %d", i, got, want, groups, total, need, best)
			}
			if got {
				decided++
				checkPicks(t, k)
			}
		}
	}
	if decided < 1000 {
		t.Errorf("only %d had a solution", decided)
	}
}

// tryAll is the largest value with exactly so many samples, -1 if impossible.
func tryAll(groups []group, g, device, left int) int {
	if g == len(groups) {
		if left == 0 {
			return 0
		}
		return -1
	}
	if device == groups[g].devices {
		return tryAll(groups, g+1, 0, left)
	}
	best := -1
	for _, c := range groups[g].choices {
		if c.batch <= left {
			if v := tryAll(groups, g, device+1, left-c.batch); v >= 0 {
				best = max(best, v+c.value)
			}
		}
	}
	return best
}

func checkPicks(t *testing.T, k *knapsack) {
	t.Helper()
	batch, value := 0, 0
	for g, list := range k.picks {
		if len(list) != k.groups[g].devices {
			t.Fatalf("group %d: %d picks for %d devices", g, len(list), k.groups[g].devices)
		}
		for _, c := range list {
			batch += k.groups[g].choices[c].batch
			value += k.groups[g].choices[c].value
		}
	}
	if batch != k.total || value < k.need {
		t.Fatalf("picks sum to %d samples and value %d, want %d and at least %d", batch, value, k.total, k.need)
	}
}
