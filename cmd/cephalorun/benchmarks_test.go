package main

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The benchmarks compare speeds of trainings that have to be the same: on two ranks of
// the processor every row of a table ends with the losses of its first one.
func TestTheRowsOfABenchmarkTrainAlike(t *testing.T) {
	newTorchBench(t)
	kept, traces := filepath.Join(t.TempDir(), "results.json"), t.TempDir()
	cmd := exec.Command(os.Getenv("CEPHALO_PYTHON"), filepath.Join("..", "..", "scripts", "bench", "main.py"),
		"--cpu", "--suites", "equal,shares", "--limit", "200", "--cephalorun", executable(t), "--json", kept, "--traces", traces)
	cmd.Env = append(os.Environ(), mainRole+"=1")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	text, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Suites map[string][]struct {
			Row struct {
				Name  string
				Shape struct{ Kind string }
			}
			Losses []float64
			StepMs float64 `json:"step_ms"`
			Trace  struct{ Most map[string]float64 }
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string]int{"equal": 4, "shares": 5} {
		got := document.Suites[name]
		if len(got) != rows {
			t.Fatalf("%s: %d rows, want %d", name, len(got), rows)
		}
		if files, _ := filepath.Glob(filepath.Join(traces, name+"*.json.gz")); len(files) != 2*rows {
			t.Errorf("%s: traces %v, want one of each row and rank", name, files)
		}
		first := map[string][]float64{}
		for _, r := range got {
			if r.StepMs <= 0 || len(r.Losses) != 3 || len(r.Trace.Most) != 5 {
				t.Errorf("%s, %s: %v ms, losses %v, traced %v", name, r.Row.Name, r.StepMs, r.Losses, r.Trace.Most)
				continue
			}
			if first[r.Row.Shape.Kind] == nil {
				first[r.Row.Shape.Kind] = r.Losses
			}
			for step, want := range first[r.Row.Shape.Kind] {
				if math.Abs(r.Losses[step]-want) > 1e-5 {
					t.Errorf("%s, %s: losses %v, want %v", name, r.Row.Name, r.Losses, first[r.Row.Shape.Kind])
					break
				}
			}
		}
	}
}
