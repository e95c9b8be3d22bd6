package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/solver"
)

const tightCase = "../../testdata/planner-cases/aws-16gpu-llama_7b-float32.profile.json"

func TestPlanExplains(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{
		"ranks 0 to 1 (l4): limited by whole samples, idle 6 % of the step: one sample more would make it the slowest, and the step 69.8 ms in place of 66.1 ms", "next best: with ragged shares, as fast",
	}, "plan", "--profile", plannerCase, "--global-batch", "64")
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"limited by memory",
		"what would help most: 313.71 MiB more on each of the 8 devices like 8 (t4) would allow 16 samples in place of 12 on them together: +2.9 % samples/s", "next best: with even shares 737.9 ms (+100.3 %)"},
		"plan", "--profile", tightCase, "--global-batch", "64")
}

func TestPlanCompares(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"compute-balance", "memory-balance", "flashflex", "nothing to cut into"}, "plan", "--compare", "--profile", plannerCase, "--global-batch", "64")
	b.out.content.Reset()
	b.mustRun(exitDone, nil, "plan", "--compare", "--without", "7", "--json", "--profile", plannerCase, "--global-batch", "64")
	var got answer
	if err := json.Unmarshal([]byte(b.out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if err := got.Plan.Validate(); err != nil || len(got.Strategies) != len(solver.Strategies()) || got.WhatIf == nil || !got.WhatIf.Fits {
		t.Errorf("%v %+v", err, got)
	}
	if got.WhatIf.IterationMs < got.Plan.Predicted.IterationMs {
		t.Errorf("without a device %v ms, with it %v", got.WhatIf.IterationMs, got.Plan.Predicted.IterationMs)
	}
}

func TestPlanAnswersWhatIf(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"without rank 2 (a6000), without rank 3 (p40): "}, "plan", "--without", "2,3", "--profile", plannerCase, "--global-batch", "64")
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"with one more L40S: ", "note: L40S was not measured: l4's times, multiplied by 0.33"}, "plan", "--add", "L40S", "--profile", plannerCase, "--global-batch", "64")
	b.mustRun(exitUsage, []string{"--without: there is no device 8: the ranks are 0 to 7"}, "plan", "--without", "8", "--profile", plannerCase, "--global-batch", "64")
	b.mustRun(exitUsage, []string{`--add: invalid input: there is no GPU "abacus"`}, "plan", "--add", "abacus", "--profile", plannerCase, "--global-batch", "64")
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"without rank 2 (a6000), without rank 3 (p40), without rank 4 (p40), without rank 5 (p40): no plan fits: device 0 (l4) lacks "}, "plan", "--without", "2,3,4,5", "--profile", strings.Replace(plannerCase, "bert_large", "llama_3b", 1), "--global-batch", "64")
}

// Ranks keep their names when others are left out.
func TestRanksOfAWhatIfAreThoseOfThePlan(t *testing.T) {
	f := planFlags{without: rankList{5, 0, 2}}
	for after, want := range []int{1, 3, 4, 6, 7} {
		if got := f.before(after); got != want {
			t.Errorf("rank %d was %d, want %d", after, got, want)
		}
	}
}

// What the text says is in the JSON too, and the plan alone is printed where nothing else was asked.
func TestPlanExplainsAsJSON(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, nil, "plan", "--json", "--explain", "--profile", tightCase, "--global-batch", "64")
	var got answer
	if err := json.Unmarshal([]byte(b.out.String()), &got); err != nil {
		t.Fatal(err)
	}
	e := got.Explanation
	if len(e.Ranks) != 16 || len(e.Steps) == 0 || e.Unused == nil || !strings.HasPrefix(e.NextBest, "next best: ") || !strings.HasPrefix(e.Help, "what would help most: ") {
		t.Errorf("%+v", e)
	}
	for i, r := range e.Ranks {
		sum := r.ReservedBytes + r.ComputeBytes + r.KeptBytes + r.StateBytes + r.TransitBytes
		if sum != got.Plan.Ranks[i].Predicted.MemoryBytes || r.Limit == "" || r.Why == "" {
			t.Errorf("rank %d: %+v, want %d bytes together", i, r, got.Plan.Ranks[i].Predicted.MemoryBytes)
		}
	}
}

// What looks like a slip in a profile is said beside the plan, and is no part of it.
func TestPlanSaysItsDoubts(t *testing.T) {
	b := newBench(t)
	odd := b.file("odd.json", strings.Replace(readFile(t, plannerCase), `"ragged_factor"`, `"raged_factors": 2, "ragged_factor"`, 1))
	b.mustRun(exitDone, nil, "plan", "--json", "--profile", odd, "--global-batch", "8")
	if want := "odd.json: raged_factors is not known and not used; is ragged_factor meant?"; !strings.Contains(b.err.String(), want) {
		t.Errorf("%q is not in %q", want, b.err.String())
	}
	if _, err := solver.ParsePlan([]byte(b.out.String())); err != nil {
		t.Error(err)
	}
}

func TestPlanTakesBatchesByHand(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, nil, "plan", "--json", "--batches", "15,2,2,2,2,2,2,2", "--profile", plannerCase)
	plan, err := solver.ParsePlan([]byte(b.out.String()))
	if err != nil || plan.GlobalBatch != 29 || plan.Ranks[0].Batch != 15 || plan.Ranks[7].Batch != 2 {
		t.Errorf("%v %+v", err, plan)
	}
	bad := map[string]struct {
		args []string
		code int
		says string
	}{
		"one for many":   {[]string{"--batches", "4", "--global-batch", "8"}, exitUsage, "--batches gives 1 batch, and there are 8 devices: give one for each, such as 4,4,4,4,4,4,4,4"},
		"beyond":         {[]string{"--global-batch", "131073"}, exitUsage, "it must be a whole number from 1 to 131072, or auto"},
		"1e30 samples":   {[]string{"--global-batch", "1e30"}, exitUsage, "it must be a whole number from 1 to 131072, or auto"},
		"a rank twice":   {[]string{"--global-batch", "8", "--without", "0,0"}, exitUsage, "rank 0 is named twice"},
		"no rank":        {[]string{"--global-batch", "8", "--without", "x"}, exitUsage, `"x" is no rank: ranks are whole numbers from 0 on`},
		"too few":        {[]string{"--batches", "15,2"}, exitUsage, "--batches gives 2 batches, and there are 8 devices"},
		"no number":      {[]string{"--batches", "15,x"}, exitUsage, `batch 1 of it is "x"`},
		"below 0":        {[]string{"--batches", "15,-1"}, exitUsage, `batch 1 of it is "-1"`},
		"absurd":         {[]string{"--batches", "1e30"}, exitUsage, `batch 0 of it is "1e30"`},
		"nothing":        {[]string{"--batches", "0,0,0,0,0,0,0,0"}, exitUsage, "all batches are 0"},
		"another sum":    {[]string{"--batches", "1,1,1,1,1,1,1,1", "--global-batch", "9"}, exitUsage, "--batches sum to 8, and --global-batch is 9"},
		"and auto":       {[]string{"--batches", "1,1,1,1,1,1,1,1", "--global-batch", "auto"}, exitUsage, "nothing to choose"},
		"and all":        {[]string{"--batches", "8,0,0,0,0,0,0,0", "--use-all"}, exitUsage, "every device is to be used"},
		"too few to all": {[]string{"--global-batch", "4", "--use-all"}, exitUsage, "4 samples cannot give each of 8 devices one"},
	}
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			newBench(t).mustRun(c.code, []string{c.says}, append([]string{"plan", "--profile", plannerCase}, c.args...)...)
		})
	}
}

// One device has hardly any memory: whatever it is given does not fit, and it is named.
func TestPlanRefusesBatchesThatDoNotFit(t *testing.T) {
	b := newBench(t)
	small := b.file("small.json", strings.Replace(readFile(t, plannerCase), `"usable_memory_bytes": 18119393280`, `"usable_memory_bytes": 2147483649`, 1))
	b.mustRun(exitNoPlan, []string{"device 0 (l4) lacks ", "its 15 samples do not fit, however they are cut"}, "plan", "--batches", "15,2,2,2,2,2,2,2", "--profile", small)
}

func TestPlanUsesAll(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, nil, "plan", "--json", "--use-all", "--global-batch", "8", "--profile", plannerCase)
	plan, err := solver.ParsePlan([]byte(b.out.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range plan.Ranks {
		if r.Batch != 1 {
			t.Errorf("rank %d has %d samples", r.Rank, r.Batch)
		}
	}
}

func TestPlanChoosesTheBatch(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"global batch  samples/s", "#####"}, "plan", "--global-batch", "auto", "--profile", plannerCase)
	b.out.content.Reset()
	b.mustRun(exitDone, nil, "plan", "--json", "--global-batch", "auto", "--profile", plannerCase)
	plan, err := solver.ParsePlan([]byte(b.out.String()))
	if err != nil || plan.GlobalBatch < 64 {
		t.Errorf("%v, global batch %d", err, plan.GlobalBatch)
	}
}

// The flags are the same for a script; why the plan is so stands below it.
func TestPlanOfAScriptAnswersToo(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"rank 0 (fast): limited by ", "without rank 1 (slow): "}, "plan", "--devices", b.devices(), "--batches", "6,2", "--without", "1", b.file("train.py", goodScript))
	b.out.content.Reset()
	b.mustRun(exitDone, nil, "plan", "--json", "--devices", b.devices(), "--batches", "6,2", b.file("train.py", goodScript))
	plan, err := solver.ParsePlan([]byte(b.out.String()))
	if err != nil || plan.Ranks[0].Batch != 6 || plan.Ranks[1].Batch != 2 {
		t.Errorf("%v %+v", err, plan)
	}
	b.mustRun(exitUsage, []string{"--batches gives 3 batches, and there are 2 devices"}, "plan", "--devices", b.devices(), "--batches", "6,2,1", b.file("train.py", goodScript))
}
