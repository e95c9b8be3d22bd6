package solver

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// No sentence counts one of many, or says of two equal times that one is more.
func TestSentencesCountRightly(t *testing.T) {
	wrong := regexp.MustCompile(`\b1 (samples|devices|units|bytes|microbatches)\b|\+0\.0 %|1\.00 times|0 bytes left for 0 bytes`)
	r := rand.New(rand.NewPCG(31, 32))
	for range 300 {
		p := randomProblem(r)
		p.ShownOne = r.IntN(2) == 0
		p.UseAll = false
		plan, err := Solve(p)
		if err != nil {
			if wrong.MatchString(err.Error()) {
				t.Errorf("%v", err)
			}
			continue
		}
		e, err := Explain(p, plan)
		if err != nil {
			t.Fatal(err)
		}
		said := append([]string{e.Bottleneck, e.NextBest, e.Help}, e.Unused...)
		for _, rank := range e.Ranks {
			said = append(said, rank.Why)
		}
		for _, a := range e.Alternatives {
			said = append(said, a.Reason)
		}
		for _, s := range said {
			if wrong.MatchString(s) {
				t.Errorf("%q", s)
			}
		}
	}
}

func TestTimesBesideThePlans(t *testing.T) {
	for ms, want := range map[float64]string{100: "as fast as the plan", 100.04: "as fast as the plan", 104.2: "4.2 % more time than the plan",
		142: "1.42 times the plan's time", 97: "3.0 % less time than the plan"} {
		if got := beside(ms, 100); got != want {
			t.Errorf("%v: %q, want %q", ms, got, want)
		}
	}
	if got := secondsOf(9836.1, 14313.9); got != "9.84 of 14.31 s" {
		t.Error(got)
	}
}

// Three devices cannot have equal parts of eight samples, and what is true of both even
// splits is said once.
func TestAlternativesAreSaidOnce(t *testing.T) {
	p := twoDevices()
	p.GlobalBatch = 5
	plan, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if want := "as fast as the plan: at most 3 samples on a device; compute: "; !strings.HasPrefix(plan.Alternatives[0].Reason, want) {
		t.Errorf("got %q, want %q", plan.Alternatives[0].Reason, want)
	}
	if got, want := plan.Alternatives[1].Reason, "the same as even, with one microbatch on a device"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Devices[0].UsableMemoryBytes, p.Devices[1].UsableMemoryBytes = 2000, 670
	if plan, err = Solve(p); err != nil {
		t.Fatal(err)
	}
	// One sample needs 100 of computing beside 480 of state and 100 reserved.
	for i, want := range []string{"device 1 (slow) lacks 10 bytes: 2 samples with recompute activations need ", "device 1 (slow) lacks the same 10 bytes as with even"} {
		if got := plan.Alternatives[i].Reason; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// More memory can help where it takes state in, so that others compute more.
func TestChangesAreSaidForward(t *testing.T) {
	m, err := newModel(twoDevices())
	if err != nil {
		t.Fatal(err)
	}
	was := Allocation{Ranks: []RankAllocation{{Batch: 3, StatePPM: 858000, Activations: Recompute}, {Batch: 3, MicroBatches: []int{2, 1}, StatePPM: 67000, Activations: Recompute}}}
	for want, now := range map[string]RankAllocation{
		"5 samples in place of 3": {Batch: 5},
		"12.3 % of the state there in place of 6.7 % with 2 samples in place of 3, and 4 samples in place of 3 on device 0 (fast)": {Batch: 2, MicroBatches: []int{2}, StatePPM: 123000, Activations: Recompute},
		"microbatch 3 in place of 2":             {Batch: 3, MicroBatches: []int{3}, StatePPM: 67000, Activations: Recompute},
		"keep activations in place of recompute": {Batch: 3, MicroBatches: []int{2, 1}, StatePPM: 67000, Activations: Keep},
		"another division with 1 sample in place of 3, and 5 samples in place of 3 on device 0 (fast)": {Batch: 1, MicroBatches: []int{1}, StatePPM: 67000, Activations: Recompute},
	} {
		after := Allocation{Ranks: []RankAllocation{{Batch: 6 - now.Batch}, now}}
		if got := m.changed(m.kinds[1], was, after); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A team is named for all that it is of.
func TestTeamsAreNamedForAllOfThem(t *testing.T) {
	m, err := newModel(twoDevices())
	if err != nil {
		t.Fatal(err)
	}
	for want, of := range map[string]team{"fast": {0}, "fast + slow": {0, 1}, "2x slow + fast": {1, 0, 1}} {
		if got := m.teamName(of); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
