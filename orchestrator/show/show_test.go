package show

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run with -update and read the difference:\n%s", path, got)
	}
}

func TestGolden(t *testing.T) {
	devices := []profiler.Device{
		{UUID: "GPU-8f0a", Name: "NVIDIA H200", Kind: profiler.KindCUDA, Capability: profiler.Capability{9, 0},
			DTypes: []profiler.DType{profiler.Float32}, MemoryBytes: 150 << 30, FreeMemoryBytes: 140 << 30, UsedByOthersBytes: 10 << 30},
		{UUID: "virtual-slow", Name: "slow", Kind: profiler.KindCPU, Virtual: true, Slowdown: 3,
			MemoryBytes: 1 << 30, FreeMemoryBytes: profiler.Unknown, UsedByOthersBytes: profiler.Unknown},
	}
	golden(t, "devices.txt", Devices(devices, []profiler.Device{{Kind: profiler.KindCUDA, Index: 1, Name: "Tesla T4", Problem: "does not answer within 5s"}}, []string{"a note"}))
	golden(t, "plan.txt", Plan(solver.Plan{Strategy: "cephalo", GlobalBatch: 64, Shares: solver.RaggedShares,
		Ranks: []solver.RankPlan{
			{Rank: 0, Device: "GPU-8f0a", Batch: 48, MicroBatches: []int{7, 7, 7, 7, 7, 7, 6}, StatePPM: 912345, ClassStatePPM: map[string]int{"GPT (root)": 500_000, "Norm": 0}, Activations: solver.Keep,
				Predicted: solver.RankPrediction{ForwardMs: 12.34, BackwardMs: 1234.5, MemoryBytes: 3 << 30, UsableMemoryBytes: 140 << 30}},
			{Rank: 1, Device: "virtual-slow", MicroBatches: []int{}, StatePPM: 87655, ClassStatePPM: map[string]int{"GPT (root)": 500_000, "Norm": 1_000_000}, Activations: solver.Recompute, KeptUnits: map[string]int{"Block": 5}},
			{Rank: 2, Device: "virtual-idle", MicroBatches: []int{}, ClassStatePPM: map[string]int{"GPT (root)": 0, "Norm": 0}, Activations: solver.Keep,
				Predicted: solver.RankPrediction{ForwardMs: 38.3, BackwardMs: 99.8, MemoryBytes: 1 << 30, UsableMemoryBytes: 2 << 30}},
		},
		Predicted:    solver.PlanPrediction{IterationMs: 1300, SamplesPerSecond: 49.2, Bottleneck: "GPU 0 computes all the time"},
		Alternatives: []solver.Alternative{{Strategy: "even", IterationMs: 2600, Reason: "2.00 times the plan's time"}, {Strategy: "even-ordinary", Reason: "lacks 5 bytes"}},
	}, []string{"NVIDIA H200", "slow"}, false))
	report := Report{Run: "20260102-030405-train", Dir: "/state/runs/x", Outcome: "done", Steps: 20, SkippedSteps: 2, GlobalBatch: 64,
		HasLoss: true, FirstLoss: 5.5, LastLoss: 2.9, PredictedStepMs: 100, MeasuredStepMs: 110, SamplesPerSecond: 581, Seconds: 12.3,
		Ranks: []ReportRow{{Rank: 0, Device: "big", Batch: 48, PredictedComputeMs: 90, MeasuredComputeMs: 95, PredictedWaitMs: 10, MeasuredWaitMs: 15, PredictedMemoryBytes: 1 << 30, MeasuredMemoryBytes: 2 << 30}}}
	golden(t, "report.txt", report.Text())
	report.Steps, report.MeasuredStepMs, report.HasLoss = 1, 0, false
	golden(t, "report-short.txt", report.Text())
}

func TestAPlanByHandSaysSo(t *testing.T) {
	if got := Plan(solver.Plan{Strategy: "cephalo", GlobalBatch: 8, Shares: solver.EvenShares}, nil, true); !strings.HasPrefix(got, "plan: batches by hand, global batch 8, even shares") {
		t.Error(got)
	}
}

func TestProgressFitsTheTerminal(t *testing.T) {
	s := Step{Number: 12, Loss: 3.14159, HasLoss: true, Samples: 64, Ms: 123.4, SamplesPerSecond: 518.6,
		Ranks: []RankStep{{100, 20, 1 << 30}, {60, 60, 2 << 30}}}
	for _, width := range []int{0, 200, 80, 60, 20, 1} {
		line := Progress(s, width)
		if width > 0 && len(line) > width {
			t.Errorf("%d columns: %q", width, line)
		}
		if !strings.HasPrefix(line, "step 12  loss 3.1416"[:min(20, len(line))]) {
			t.Errorf("%d columns: %q", width, line)
		}
	}
	if line := Progress(s, 0); !strings.Contains(line, "20.0 ms wait, 1.0 GiB") {
		t.Errorf("got %q", line)
	}
}

func TestMicrobatches(t *testing.T) {
	cases := map[string][]int{"-": nil, "5": {5}, "2x7+6": {7, 7, 6}, "7+6": {7, 6}}
	for want, sizes := range cases {
		if got := microbatches(sizes); got != want {
			t.Errorf("%v: %q, want %q", sizes, got, want)
		}
	}
}
