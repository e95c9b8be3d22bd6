package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/solver"
)

const (
	paperA = "../../examples/clusters/paper-a.yaml"
	paperB = "../../examples/clusters/paper-b.yaml"
	gpt27  = "../../examples/models/gpt-2.7b.yaml"
)

func simulated(t *testing.T, args ...string) simulation {
	t.Helper()
	b := newBench(t)
	b.mustRun(exitDone, nil, append([]string{"simulate", "--json"}, args...)...)
	var s simulation
	if err := json.Unmarshal([]byte(b.out.String()), &s); err != nil || b.err.String() != "" {
		t.Fatalf("%v; standard error %q", err, b.err.String())
	}
	return s
}

func (s simulation) of(t *testing.T, strategy string) outcomeRecord {
	t.Helper()
	for _, o := range s.Strategies {
		if o.Strategy == strategy {
			return o
		}
	}
	t.Fatalf("no %s in %+v", strategy, s.Strategies)
	return outcomeRecord{}
}

func TestSimulateThePapersClusters(t *testing.T) {
	for _, cluster := range []string{paperA, paperB} {
		s := simulated(t, "--cluster", cluster, "--model", gpt27, "--global-batch", "128")
		if len(s.Strategies) != len(solver.Strategies()) || s.GlobalBatch != 128 || s.Model != "gpt-2.7b" || s.DType != "float32" {
			t.Errorf("%+v", s)
		}
		ours := s.of(t, solver.StrategyCephalo)
		if !ours.Runs || len(ours.Ranks) != s.Devices || ours.SamplesPerSecond < s.of(t, solver.StrategyEven).SamplesPerSecond {
			t.Errorf("cephalo: %+v", ours)
		}
		sum := 0
		for _, r := range ours.Ranks {
			sum += r.Batch
			if r.MemoryBytes > r.UsableBytes {
				t.Errorf("rank %d uses %d of %d bytes", r.Rank, r.MemoryBytes, r.UsableBytes)
			}
		}
		if sum != 128 {
			t.Errorf("batches sum to %d", sum)
		}
	}
}

func TestSimulateEveryExample(t *testing.T) {
	models, err := filepath.Glob("../../examples/models/*.yaml")
	if err != nil || len(models) < 10 {
		t.Fatalf("%d models, %v", len(models), err)
	}
	for _, model := range models {
		s := simulated(t, "--cluster", paperA, "--model", model, "--global-batch", "64")
		if ours := s.of(t, solver.StrategyCephalo); !ours.Runs && s.Model != "gpt-6.7b" && s.Model != "llama-7b" {
			t.Errorf("%s does not run: %s", s.Model, ours.How)
		}
	}
}

func TestSimulatePrintsATable(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"gpt-2.7b on paper-a: 8 devices, global batch 64, float32", "strategy", "samples/s", "computing", "TFLOP/s", "megatron-het", "memory-balance"},
		"simulate", "--cluster", paperA, "--model", gpt27, "--global-batch", "64")
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"global batch", "####"}, "simulate", "--cluster", paperA, "--model", gpt27, "--global-batch", "auto")
}

func TestSimulateDrawsAChart(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"chart.svg", "chart.html"} {
		path := filepath.Join(b.dir, name)
		b.mustRun(exitDone, nil, "simulate", "--cluster", paperA, "--model", gpt27, "--global-batch", "64", "--chart", path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"<svg", "gpt-2.7b on paper-a", "cephalo", "flashflex", "samples/s"} {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s: %q is missing", name, want)
			}
		}
	}
}

const mixedCluster = "nodes: [ { inside_gb_per_s: 10, gpus: [ { gpu: A6000 }, { gpu: P100-12GB, count: 2 } ] } ]"

// What a simulated plan is can be read off its ranks, and a pipeline's stages say on what they run.
func TestSimulateTellsWhatEveryRankDoes(t *testing.T) {
	s := simulated(t, "--cluster", newBench(t).file("c.yaml", mixedCluster), "--model", "../../examples/models/gpt-1.3b.yaml", "--global-batch", "8")
	if s.Notes == nil {
		t.Error("notes are null")
	}
	batch, ppm := 0, 0
	for _, r := range s.of(t, solver.StrategyCephalo).Ranks {
		sum := 0
		for _, m := range r.MicroBatches {
			sum += m
		}
		if sum != r.Batch || r.Activations == "" {
			t.Errorf("%+v", r)
		}
		batch, ppm = batch+r.Batch, ppm+r.StatePPM
	}
	if batch != 8 || ppm != solver.TotalPPM {
		t.Errorf("batches sum to %d, shares to %d", batch, ppm)
	}
	units := 0
	for _, r := range s.of(t, solver.StrategyFlashFlex).Ranks {
		if r.Batch != 8 || r.Team < 1 || r.MicroBatches == nil {
			t.Errorf("%+v", r)
		}
		units += r.Units / r.Team
	}
	if units != 25 && s.of(t, solver.StrategyFlashFlex).Ranks[1].Team != 2 { // 24 blocks and the root
		t.Errorf("%d units: %+v", units, s.of(t, solver.StrategyFlashFlex).Ranks)
	}
}

// Where nothing is a screen no reason is cut, and the picture has reasons, the table's numbers
// and the curve.
func TestSimulateKeepsReasons(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.dir, "c.svg")
	b.mustRun(exitDone, []string{"more memory\n", "does not fit, for the same reason as even"}, "simulate", "--cluster", b.file("c.yaml", mixedCluster), "--model", gpt27, "--global-batch", "8", "--chart", path)
	if svg := readFile(t, path); !strings.Contains(svg, "does not fit: device 1 (P100-12GB) lacks ") || strings.Contains(svg, "<polyline") {
		t.Errorf("%s", svg)
	}
	b.out.content.Reset()
	b.app.screen = true
	b.mustRun(exitDone, []string{"...\n", "\neven does not fit: device 1 (P100-12GB) lacks "}, "simulate", "--cluster", b.file("c.yaml", mixedCluster), "--model", gpt27, "--global-batch", "8")
	b.mustRun(exitDone, nil, "simulate", "--cluster", b.file("c.yaml", mixedCluster), "--model", "../../examples/models/gpt-1.3b.yaml", "--global-batch", "auto", "--chart", path)
	if svg := readFile(t, path); !strings.Contains(svg, "<polyline") || !strings.Contains(svg, "samples per second of cephalo by global batch") {
		t.Error("the curve is not in the picture")
	}
}

// What a profile measured wins over the catalogue: the prototype's own figures.
func TestSimulateFromAProfile(t *testing.T) {
	cluster := newBench(t).file("c.yaml", "nodes: [ { inside_gb_per_s: 9, gpus: [ { gpu: l4, count: 2 }, { gpu: a6000 }, { gpu: p40, count: 3 }, { gpu: p100, count: 2 } ] } ]")
	s := simulated(t, "--cluster", cluster, "--profile", "../../testdata/planner-cases/paper-gpt_2.7b-float32.profile.json", "--global-batch", "64")
	if ours := s.of(t, solver.StrategyCephalo); ours.IterationMs < 419.97 || ours.IterationMs > 419.99 { // optimum_ms 419.983
		t.Errorf("%v ms", ours.IterationMs)
	}
}

func TestSimulateBadInput(t *testing.T) {
	cases := map[string]struct {
		args func(b *bench) []string
		code int
		says []string
	}{
		"nothing":  {func(*bench) []string { return nil }, exitUsage, []string{"needs --cluster FILE"}},
		"no model": {func(*bench) []string { return []string{"--cluster", paperA} }, exitUsage, []string{"either --model FILE or --profile FILE"}},
		"both": {func(*bench) []string {
			return []string{"--cluster", paperA, "--model", gpt27, "--profile", plannerCase}
		}, exitUsage, []string{"either --model"}},
		"no batch":    {func(*bench) []string { return []string{"--cluster", paperA, "--model", gpt27} }, exitUsage, []string{"--global-batch N"}},
		"batch of 0":  {func(*bench) []string { return []string{"--global-batch", "0"} }, exitUsage, []string{"from 1 to 131072, or auto"}},
		"an argument": {func(*bench) []string { return []string{"x"} }, exitUsage, []string{"unknown command"}},
		"no such file": {func(*bench) []string {
			return []string{"--cluster", "/none.yaml", "--model", gpt27, "--global-batch", "8"}
		}, exitUsage, []string{"/none.yaml"}},
		"no such model": {func(*bench) []string {
			return []string{"--cluster", paperA, "--model", "/none.yaml", "--global-batch", "8"}
		}, exitUsage, []string{"/none.yaml"}},
		"a bad cluster": {func(b *bench) []string {
			return []string{"--cluster", b.file("c.yaml", "nodes:\n  - { gpus: [ { gpu: Abacus, count: -1 } ], speed: 1 }\n"), "--model", gpt27, "--global-batch", "8"}
		}, exitUsage, []string{"c.yaml", "nodes[0].gpus[0].gpu", "nodes[0].gpus[0].count", "nodes[0].speed"}},
		"a model and a cluster": {func(b *bench) []string {
			return []string{"--cluster", b.file("c.yaml", "nodes: [ { gpus: [ { gpu: L4, memory: 400GiB } ] } ]"), "--model", b.file("m.yaml", "name: ''\nsequence: 1\n"), "--global-batch", "8"}
		}, exitUsage, []string{"m.yaml: ", "name: is empty", "layers: is missing", "c.yaml: nodes[0].gpus[0].memory: is 400.0 GiB, and L4 has 22.5 GiB"}},
		"a profile and a cluster": {func(b *bench) []string {
			return []string{"--cluster", b.file("c.yaml", "nodes: [ { count: 0, gpus: [ { gpu: fast } ] } ]"), "--profile", b.file("p.json", "{}"), "--global-batch", "8"}
		}, exitUsage, []string{"p.json: ", "version: is missing", "model: is missing", "c.yaml: nodes[0].count: "}},
		"more memory than was measured": {func(b *bench) []string {
			return []string{"--cluster", b.file("c.yaml", "nodes: [ { gpus: [ { gpu: l4, memory: 400GiB } ] } ]"), "--profile", plannerCase, "--global-batch", "8"}
		}, exitUsage, []string{"node node0: memory is 400.0 GiB, and l4 has "}},
		"a GPU without a name": {func(b *bench) []string {
			return []string{"--cluster", b.file("c.yaml", "nodes: [ { gpus: [ { gpu: '', cuont: 2 } ] } ]"), "--model", gpt27, "--global-batch", "8"}
		}, exitUsage, []string{"nodes[0].gpus[0].gpu: is empty", "cuont: is an unknown field (line 1); known are gpu, count and memory"}},
		"a chart of another kind": {func(*bench) []string {
			return []string{"--cluster", paperA, "--model", gpt27, "--global-batch", "8", "--chart", "c.png"}
		}, exitUsage, []string{"must end in .svg or .html"}},
		"a chart that cannot be written": {func(b *bench) []string {
			return []string{"--cluster", paperA, "--model", gpt27, "--global-batch", "8", "--chart", filepath.Join(b.dir, "none", "c.svg")}
		}, exitUsage, []string{"--chart"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.mustRun(c.code, c.says, append([]string{"simulate"}, c.args(b)...)...)
		})
	}
}
