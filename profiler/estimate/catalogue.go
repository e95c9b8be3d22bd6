package estimate

import "github.com/cephalorun/cephalorun/profiler"

// Catalogue is the GPUs that are known, oldest first.
//
// Sustained comes from the forward times of one block of a GPT of 2.7 billion
// parameters (sequence 512) in testdata/planner-cases, which a test compares.
func Catalogue() []GPU {
	type rates = map[profiler.DType]float64
	const full, half, brain = profiler.Float32, profiler.Float16, profiler.BFloat16
	return []GPU{
		{Name: "P100-12GB", Aliases: []string{"Tesla P100-PCIE-12GB"}, Capability: profiler.Capability{6, 0}, MemoryMiB: 12288, BandwidthGBs: 549,
			PeakTFLOPS: rates{full: 9.3, half: 18.7}, Sustained: rates{full: 0.518, half: 0.283}, Source: "NVIDIA Tesla P100 PCIe data sheet"},
		{Name: "P100", Aliases: []string{"Tesla P100-PCIE-16GB", "P100-16GB"}, Capability: profiler.Capability{6, 0}, MemoryMiB: 16384, BandwidthGBs: 732,
			PeakTFLOPS: rates{full: 9.3, half: 18.7}, Sustained: rates{full: 0.518, half: 0.283}, Source: "NVIDIA Tesla P100 PCIe data sheet"},
		{Name: "P40", Capability: profiler.Capability{6, 1}, MemoryMiB: 23040, BandwidthGBs: 346,
			PeakTFLOPS: rates{full: 12}, Sustained: rates{full: 0.375}, Source: "NVIDIA Tesla P40 data sheet (half precision is computed in float32)"},
		{Name: "V100", Aliases: []string{"V100-16GB", "V100x16", "V100-SXM2-16GB"}, Capability: profiler.Capability{7, 0}, MemoryMiB: 16384, BandwidthGBs: 900,
			PeakTFLOPS: rates{full: 15.7, half: 125}, Sustained: rates{full: 0.682}, Source: "NVIDIA Tesla V100 data sheet (SXM2)"},
		{Name: "V100-32GB", Aliases: []string{"V100x32", "V100-SXM2-32GB"}, Capability: profiler.Capability{7, 0}, MemoryMiB: 32768, BandwidthGBs: 900,
			PeakTFLOPS: rates{full: 15.7, half: 125}, Sustained: rates{full: 0.682}, Source: "NVIDIA Tesla V100 data sheet (SXM2)"},
		{Name: "T4", Capability: profiler.Capability{7, 5}, MemoryMiB: 15360, BandwidthGBs: 320,
			PeakTFLOPS: rates{full: 8.1, half: 65}, Sustained: rates{full: 0.411}, Source: "NVIDIA T4 data sheet"},
		{Name: "RTX 2080 Ti", Capability: profiler.Capability{7, 5}, MemoryMiB: 11264, BandwidthGBs: 616,
			PeakTFLOPS: rates{full: 13.4, half: 53.8}, Source: "NVIDIA Turing GPU architecture whitepaper (reference card)"},
		{Name: "RTX 3060", Capability: profiler.Capability{8, 6}, MemoryMiB: 12288, BandwidthGBs: 360,
			PeakTFLOPS: rates{full: 12.7, half: 25.5, brain: 25.5}, Source: "NVIDIA GeForce RTX 3060 specifications; tensor rate per SM from the GA102 whitepaper"},
		{Name: "RTX 3090", Capability: profiler.Capability{8, 6}, MemoryMiB: 24576, BandwidthGBs: 936,
			PeakTFLOPS: rates{full: 35.6, half: 71, brain: 71}, Source: "NVIDIA Ampere GA102 GPU architecture whitepaper"},
		{Name: "RTX 4090", Capability: profiler.Capability{8, 9}, MemoryMiB: 24564, BandwidthGBs: 1008,
			PeakTFLOPS: rates{full: 82.6, half: 165.2, brain: 165.2}, Source: "NVIDIA Ada GPU architecture whitepaper"},
		{Name: "A6000", Aliases: []string{"RTX A6000"}, Capability: profiler.Capability{8, 6}, MemoryMiB: 49140, BandwidthGBs: 768,
			PeakTFLOPS: rates{full: 38.7, half: 154.8, brain: 154.8}, Sustained: rates{full: 0.354, half: 0.19}, Source: "NVIDIA RTX A6000 data sheet; GA102 whitepaper"},
		{Name: "A10G", Capability: profiler.Capability{8, 6}, MemoryMiB: 23030, BandwidthGBs: 600,
			PeakTFLOPS: rates{full: 35, half: 70, brain: 70}, Sustained: rates{full: 0.356}, Source: "NVIDIA A10G data sheet"},
		{Name: "L4", Capability: profiler.Capability{8, 9}, MemoryMiB: 23040, BandwidthGBs: 300,
			PeakTFLOPS: rates{full: 30.3, half: 121, brain: 121}, Sustained: rates{full: 0.197, half: 0.0927}, Source: "NVIDIA L4 data sheet"},
		{Name: "L40S", Capability: profiler.Capability{8, 9}, MemoryMiB: 46068, BandwidthGBs: 864,
			PeakTFLOPS: rates{full: 91.6, half: 362, brain: 362}, Source: "NVIDIA L40S data sheet"},
		{Name: "A100-40GB", Aliases: []string{"A100", "A100-SXM4-40GB", "A100-PCIE-40GB"}, Capability: profiler.Capability{8, 0}, MemoryMiB: 40960, BandwidthGBs: 1555,
			PeakTFLOPS: rates{full: 19.5, half: 312, brain: 312}, Source: "NVIDIA A100 data sheet"},
		{Name: "A100-80GB", Aliases: []string{"A100-SXM4-80GB"}, Capability: profiler.Capability{8, 0}, MemoryMiB: 81920, BandwidthGBs: 2039,
			PeakTFLOPS: rates{full: 19.5, half: 312, brain: 312}, Source: "NVIDIA A100 80GB data sheet (SXM)"},
		{Name: "H100", Aliases: []string{"H100-80GB", "H100 80GB HBM3", "H100-SXM5-80GB"}, Capability: profiler.Capability{9, 0}, MemoryMiB: 81559, BandwidthGBs: 3350,
			PeakTFLOPS: rates{full: 67, half: 989, brain: 989}, Source: "NVIDIA H100 data sheet (SXM)"},
		{Name: "H200", Aliases: []string{"H200-141GB"}, Capability: profiler.Capability{9, 0}, MemoryMiB: 143771, BandwidthGBs: 4800,
			PeakTFLOPS: rates{full: 67, half: 989, brain: 989}, Source: "NVIDIA H200 data sheet (SXM)"},
	}
}
