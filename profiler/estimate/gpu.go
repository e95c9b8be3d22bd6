package estimate

import (
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
)

// GPU is one model of GPU.
type GPU struct {
	Name string
	// Aliases are other spellings, as drivers and clouds write them.
	Aliases    []string
	Capability profiler.Capability
	// MemoryMiB is what the driver reports, error correction on where that is
	// how the card comes.
	MemoryMiB int64
	// BandwidthGBs is of the card's memory, 10^9 bytes per second.
	BandwidthGBs float64
	// PeakTFLOPS is the dense peak of matrix products by compute type, without
	// sparsity, with 32-bit accumulation where the sheet tells both.
	PeakTFLOPS map[profiler.DType]float64
	// Sustained is the part of the peak that a transformer block was measured to
	// reach (see Reached); a type that is missing was not measured.
	Sustained map[profiler.DType]float64
	// Source is the data sheet.
	Source string
}

// What a card reaches of its peak where nobody measured it.
const (
	defaultSustainedFull = 0.5 // float32
	defaultSustainedHalf = 0.4 // float16 and bfloat16 on tensor cores
)

// Reached is the speed that the estimate counts on, in 10^12 operations per
// second.
func (g GPU) Reached(t profiler.DType) float64 {
	peak, ok := g.PeakTFLOPS[t]
	if !ok { // no such hardware: it computes in float32
		t = profiler.Float32
		peak = g.PeakTFLOPS[t]
	}
	if part, measured := g.Sustained[t]; measured {
		return peak * part
	}
	if t == profiler.Float32 {
		return peak * defaultSustainedFull
	}
	return peak * defaultSustainedHalf
}

// Slower is how many times as long a GPU takes as another: by what both were
// measured to reach, else by their peaks.
func (g GPU) Slower(than GPU, t profiler.DType) float64 {
	_, one := g.Sustained[t]
	_, two := than.Sustained[t]
	if one && two {
		return than.Reached(t) / g.Reached(t)
	}
	return than.peak(t) / g.peak(t)
}

// peak of a type; a card without the hardware computes in float32.
func (g GPU) peak(t profiler.DType) float64 {
	if peak, ok := g.PeakTFLOPS[t]; ok {
		return peak
	}
	return g.PeakTFLOPS[profiler.Float32]
}

// Find is the GPU of a name, however it is spelt.
func Find(name string) (GPU, bool) {
	want := plain(name)
	for _, g := range Catalogue() {
		if plain(g.Name) == want || slices.ContainsFunc(g.Aliases, func(a string) bool { return plain(a) == want }) {
			return g, true
		}
	}
	return GPU{}, false
}

// plain drops what spellings differ in.
func plain(name string) string {
	name = strings.ToLower(name)
	for _, word := range []string{"nvidia", "tesla", "geforce", "quadro", " ", "-", "_"} {
		name = strings.ReplaceAll(name, word, "")
	}
	return name
}
