package estimate

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

const casesDir = "../../testdata/planner-cases"

func TestCatalogueIsWhole(t *testing.T) {
	for _, name := range []string{"P40", "P100", "V100-16GB", "V100-32GB", "T4", "RTX 2080 Ti", "RTX 3060", "RTX 3090", "RTX 4090",
		"A6000", "A10G", "L4", "L40S", "A100-40GB", "A100-80GB", "H100", "H200"} {
		if _, ok := Find(name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
	seen := map[string]bool{}
	for _, g := range Catalogue() {
		for _, name := range append([]string{g.Name}, g.Aliases...) {
			if seen[plain(name)] {
				t.Errorf("%s is there twice", name)
			}
			seen[plain(name)] = true
		}
		if g.MemoryMiB < 8<<10 || g.BandwidthGBs < 100 || !g.Capability.Known() || g.PeakTFLOPS[profiler.Float32] <= 0 {
			t.Errorf("%s lacks something: %+v", g.Name, g)
		}
		if !strings.HasPrefix(g.Source, "NVIDIA ") {
			t.Errorf("%s: source %q", g.Name, g.Source)
		}
		for _, dtype := range profiler.NativeDTypes(profiler.KindCUDA, g.Capability) {
			// the P40 has float16 in name only: no rate, so it counts as float32
			if _, ok := g.PeakTFLOPS[dtype]; !ok && g.Name != "P40" {
				t.Errorf("%s has no peak for %s", g.Name, dtype)
			}
		}
		for dtype, part := range g.Sustained {
			if part <= 0 || part > 1 || g.PeakTFLOPS[dtype] == 0 {
				t.Errorf("%s reaches %v of its %s peak", g.Name, part, dtype)
			}
		}
	}
}

func TestFindReadsOtherSpellings(t *testing.T) {
	cases := map[string]string{"NVIDIA L4": "L4", "Tesla T4": "T4", "v100x16": "V100", "NVIDIA A100-SXM4-80GB": "A100-80GB",
		"NVIDIA GeForce RTX 4090": "RTX 4090", "nvidia rtx a6000": "A6000", "NVIDIA H100 80GB HBM3": "H100", "Tesla P100-PCIE-12GB": "P100-12GB"}
	for spelt, want := range cases {
		if g, ok := Find(spelt); !ok || g.Name != want {
			t.Errorf("%s is %q, want %q", spelt, g.Name, want)
		}
	}
	if g, ok := Find("abacus"); ok {
		t.Errorf("an abacus is a %s", g.Name)
	}
}

// Sustained is what the prototype's authors measured: the slope of the forward
// time of one block of GPT 2.7B, over the operations of such a block.
func TestSustainedIsMeasured(t *testing.T) {
	model, err := ReadModel("../../examples/models/gpt-2.7b.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for file, dtype := range map[string]profiler.DType{"paper-gpt_2.7b-float32": profiler.Float32, "paper-gpt_2.7b-float16": profiler.Float16, "aws-16gpu-gpt_2.7b-float32": profiler.Float32} {
		p, err := profiler.ReadProfile(filepath.Join(casesDir, file+".profile.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Devices {
			gpu, ok := Find(d.Name)
			if !ok {
				t.Fatalf("%s is not in the catalogue", d.Name)
			}
			measured := model.blockOperations() / d.Costs["layer"].ForwardMs.Tail.Slope / 1e9
			allowed := 0.02
			if _, ok := gpu.PeakTFLOPS[dtype]; !ok {
				allowed = 0.2 // the P40's half precision is taken for float32
			}
			if got := gpu.Reached(dtype); math.Abs(got/measured-1) > allowed {
				t.Errorf("%s %s: %.2f TFLOP/s in the catalogue, %.2f measured (%.3f of the peak)", gpu.Name, dtype, got, measured, measured/gpu.peak(dtype))
			}
			compared++
		}
	}
	if compared != 32 {
		t.Errorf("%d devices compared", compared)
	}
}

// The catalogue's memory is what the drivers of the measured cards reported.
func TestMemoryIsMeasured(t *testing.T) {
	for _, file := range []string{"paper-gpt_2.7b-float32", "aws-16gpu-gpt_2.7b-float32"} {
		p, err := profiler.ReadProfile(filepath.Join(casesDir, file+".profile.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Devices {
			name := d.Name
			if name == "p100" {
				name = "P100-12GB"
			}
			gpu, _ := Find(name)
			if got := float64(gpu.MemoryMiB<<20) / float64(d.MemoryBytes); math.Abs(got-1) > 0.003 {
				t.Errorf("%s: %d MiB in the catalogue, %d bytes measured", name, gpu.MemoryMiB, d.MemoryBytes)
			}
		}
	}
}

func examples(t testing.TB, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../examples", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples in %s: %v", folder, err)
	}
	return files
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
