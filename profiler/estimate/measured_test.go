package estimate

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

// TestEstimateAgainstMeasured compares the estimate with what the prototype's
// authors measured, at a microbatch of 4; -v prints the table of
// docs/simulate.md. Their sequence lengths are not known and taken as 512 (257
// for images), so single models are off by more than the median says.
func TestEstimateAgainstMeasured(t *testing.T) {
	pairs := [][2]string{
		{"paper-bert_large-float32", "bert-large"}, {"paper-gpt_1.3b-float32", "gpt-1.3b"}, {"paper-gpt_2.7b-float32", "gpt-2.7b"},
		{"aws-16gpu-gpt_2.7b-float32", "gpt-2.7b"}, {"aws-16gpu-gpt_6.7b-float32", "gpt-6.7b"}, {"paper-llama_3b-float32", "llama-3b"},
		{"aws-16gpu-llama_7b-float32", "llama-7b"}, {"paper-llama_tiny-float32", "llama-tiny"}, {"paper-vit_g-float32", "vit-g"},
		{"paper-vit_e-float32", "vit-e"}, {"aws-16gpu-vit_e-float32", "vit-e"},
	}
	const samples = 4
	var forward, backward, memory []float64
	for _, pair := range pairs {
		p, err := profiler.ReadProfile(filepath.Join(casesDir, pair[0]+".profile.json"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := ReadModel("../../examples/models/" + pair[1] + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		last := ""
		for _, d := range p.Devices {
			if d.Name == last {
				continue
			}
			last = d.Name
			gpu, _ := Find(d.Name)
			block, root, measured := m.block(gpu), m.root(gpu), d.Costs["layer"]
			f := block.ForwardMs.At(samples) / measured.ForwardMs.At(samples)
			b := block.BackwardMs.At(samples) / measured.BackwardMs.At(samples)
			peak := max(block.MemoryBytes.At(samples), root.MemoryBytes.At(samples)) / measured.MemoryBytes.At(samples)
			t.Logf("%-11s %-8s forward %.2f backward %.2f memory %.2f", pair[1], d.Name, f, b, peak)
			forward, backward, memory = append(forward, f), append(backward, b), append(memory, peak)
		}
	}
	for name, list := range map[string][]float64{"forward": forward, "backward": backward, "memory": memory} {
		slices.Sort(list)
		middle := list[len(list)/2]
		t.Logf("%s: median %.2f, from %.2f to %.2f", name, middle, list[0], list[len(list)-1])
		if middle < 0.7 || middle > 1.4 {
			t.Errorf("%s: estimated over measured is %.2f in the median", name, middle)
		}
	}
}
