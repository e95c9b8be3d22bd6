package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/measure"
	"github.com/cephalorun/cephalorun/solver"
)

const million = solver.TotalPPM

// peakCases are allocations on four ranks: few and many samples, one microbatch and several, every
// share of the state.
func peakCases() map[string][]solver.RankAllocation {
	rank := func(policy solver.Policy, ppm int, micro ...int) solver.RankAllocation {
		r := solver.RankAllocation{MicroBatches: micro, StatePPM: ppm, Activations: policy}
		for _, m := range micro {
			r.Batch += m
		}
		return r
	}
	const even = million / 4
	cases := map[string][]solver.RankAllocation{
		"few samples":               {rank(solver.Recompute, even, 6), rank(solver.Keep, even, 2, 2), rank(solver.Recompute, even, 1), rank(solver.Recompute, even)},
		"many":                      {rank(solver.Keep, even, 4, 4, 4, 4), rank(solver.Keep, even, 12), rank(solver.Recompute, even, 2, 2, 2, 2), rank(solver.Recompute, even, 4)},
		"ragged":                    {rank(solver.Recompute, 0, 8, 8), rank(solver.Recompute, 300_000, 6), rank(solver.Keep, 600_000, 4), rank(solver.Recompute, 100_000, 2)},
		"one owns all but the root": {rank(solver.Keep, 0, 5, 5), rank(solver.Recompute, million, 3), rank(solver.Recompute, 0, 2, 2), rank(solver.Recompute, 0)},
		"some units kept":           {rank(solver.Recompute, even, 4, 4, 4, 4), rank(solver.Recompute, even, 8), rank(solver.Keep, even, 4), rank(solver.Recompute, even, 2)},
	}
	for i := range cases["one owns all but the root"] {
		cases["one owns all but the root"][i].ClassStatePPM = map[string]int{"GPT (root)": even}
	}
	for i := range 2 {
		cases["some units kept"][i].KeptUnits = map[string]int{"Block": 2}
	}
	return cases
}

// The peak that a plan names is that of a step to 5 %, counted tensor by tensor on real ranks.
func TestThePeakOfAPlanIsThatOfItsStep(t *testing.T) {
	python := os.Getenv("CEPHALO_PYTHON")
	if python == "" {
		t.Fatal("CEPHALO_PYTHON must name a Python with PyTorch; `make test` sets it")
	}
	cases, dir := peakCases(), t.TempDir()
	var names []string
	var plans []solver.Plan
	for name, ranks := range cases {
		names = append(names, name)
		plans = append(plans, planOf(ranks))
	}
	data, err := json.Marshal(plans)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "plans.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	shim, err := filepath.Abs("../../pyshim")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
		"testdata/peak.py", dir, file)
	c.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONPATH="+strings.Join([]string{shim, filepath.Join(shim, "tests"), os.Getenv("PYTHONPATH")}, ":"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	profile := profileIn(t, dir)
	for i, name := range names {
		problem, err := orchestrator.ProblemOf(profile, plans[i].GlobalBatch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := solver.Evaluate(problem, plans[i].Allocation())
		if err != nil {
			t.Fatal(err)
		}
		for rank, load := range got.Ranks {
			if off := float64(peaksOf(t, dir, rank)[i])/float64(load.ExpectedBytes) - 1; math.Abs(off) > 0.05 {
				t.Errorf("%s, rank %d: a peak of %d bytes, %d expected: off by %+.1f %%", name, rank, peaksOf(t, dir, rank)[i], load.ExpectedBytes, 100*off)
			}
			if load.MemoryBytes() < peaksOf(t, dir, rank)[i] {
				t.Errorf("%s, rank %d: a peak of %d bytes, and room for %d", name, rank, peaksOf(t, dir, rank)[i], load.MemoryBytes())
			}
		}
	}
}

func planOf(ranks []solver.RankAllocation) solver.Plan {
	p := solver.Plan{Version: 1, Strategy: solver.StrategyCephalo, Shares: solver.RaggedShares, Alternatives: []solver.Alternative{}}
	for i, r := range ranks {
		p.GlobalBatch += r.Batch
		micro := append([]int{}, r.MicroBatches...)
		p.Ranks = append(p.Ranks, solver.RankPlan{Rank: i, Device: fmt.Sprintf("virtual-%d", i), Batch: r.Batch, MicroBatches: micro, StatePPM: r.StatePPM,
			ClassStatePPM: r.ClassStatePPM, Activations: r.Activations, KeptUnits: r.KeptUnits})
	}
	return p
}

func profileIn(t *testing.T, dir string) profiler.Profile {
	t.Helper()
	var files []string
	var devices []profiler.Device
	for rank := range 4 {
		files = append(files, filepath.Join(dir, "measure", fmt.Sprintf("rank-%d.json", rank)))
		uuid := fmt.Sprintf("virtual-%d", rank)
		devices = append(devices, profiler.Device{Kind: profiler.KindCPU, Name: uuid, UUID: uuid, Virtual: true, MemoryBytes: 1 << 30, UsableMemoryBytes: 1 << 30})
	}
	all, err := measure.ReadAll(files)
	if err != nil {
		t.Fatal(err)
	}
	result, err := measure.Merge(measure.Run{Devices: devices}, all)
	if err != nil {
		t.Fatal(err)
	}
	return result.Profile
}

func peaksOf(t *testing.T, dir string, rank int) []int64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("peaks-%d.json", rank)))
	if err != nil {
		t.Fatal(err)
	}
	var peaks []int64
	if err := json.Unmarshal(data, &peaks); err != nil {
		t.Fatal(err)
	}
	return peaks
}
