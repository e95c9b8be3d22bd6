package solver

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden plans anew")

// TestGoldenPlans holds whole documents: go test ./solver -run Golden -update
// writes them anew.
func TestGoldenPlans(t *testing.T) {
	byHand := twoDevices()
	byHand.MicrobatchOverheadMs = Overhead{0.5, 1}
	problems := map[string]Problem{"by-hand": byHand}
	for _, c := range loadCases(t) {
		problems[c.Profile[:len(c.Profile)-len(".profile.json")]] = loadProblem(t, c)
	}
	problems["fleet"] = fleet{devices: 12, kinds: 3, batch: 96, classes: 2, memory: 2, policies: []Policy{Keep, Recompute, Offload}, seed: 3}.problem()
	for _, name := range sortedKeys(problems) {
		t.Run(name, func(t *testing.T) {
			plan, err := Solve(problems[name])
			if err != nil {
				t.Fatal(err)
			}
			got, err := plan.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "golden", name+".plan.json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs; look at it and run with -update if it is right:\n%s", path, got)
			}
			if again, err := ParsePlan(want); err != nil || again.GlobalBatch != problems[name].GlobalBatch {
				t.Errorf("%s does not read back: %v", path, err)
			}
		})
	}
}
