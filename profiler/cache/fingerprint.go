package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
)

// Prefix starts every fingerprint.
const Prefix = "sha256:"

// Inputs is everything that a profile depends on.
type Inputs struct {
	// Sources are the script and the modules of its own that it imports; see
	// ScriptSources. Paths count only relative to each other.
	Sources []Source
	// Args are the script's own arguments.
	Args   []string
	Python string // version
	Torch  string // version
	Driver string // version; empty without one
	// Devices by rank, with their limits. How much of their memory is free just
	// now does not count.
	Devices []profiler.Device
	// Package is the content hash of the Python package that measures.
	Package string
	// Environment holds NAME=value of what changes costs; see CostEnvironment.
	Environment []string
}

// Source is one file of the user's.
type Source struct {
	Path    string
	Content []byte
}

// Fingerprint is "sha256:" and 64 hexadecimal digits. Each input is written
// with its name and length, so that no two sets of inputs look alike.
func Fingerprint(in Inputs) string {
	h := sha256.New()
	field(h, "format", "1")
	for _, s := range in.Sources {
		field(h, "source", s.Path)
		field(h, "content", string(s.Content))
	}
	for _, a := range in.Args {
		field(h, "arg", a)
	}
	field(h, "python", in.Python)
	field(h, "torch", in.Torch)
	field(h, "driver", in.Driver)
	field(h, "package", in.Package)
	for _, d := range in.Devices {
		field(h, "device", deviceKey(d))
	}
	environment := slices.Clone(in.Environment)
	slices.Sort(environment)
	for _, e := range environment {
		field(h, "env", e)
	}
	return Prefix + hex.EncodeToString(h.Sum(nil))
}

func field(h hash.Hash, name, value string) {
	// A hash never fails to take bytes.
	_, _ = fmt.Fprintf(h, "%s %d:", name, len(value))
	_, _ = io.WriteString(h, value)
	_, _ = io.WriteString(h, "\n")
}

// deviceKey is what of a device changes costs. The memory of a virtual device
// is a limit and part of it; so is the total of a real one.
func deviceKey(d profiler.Device) string {
	return fmt.Sprintf("%q %q %q %q %q mem=%d cc=%s link=%s threads=%d slowdown=%g sm=%d",
		d.UUID, d.GPUUUID, d.Kind, d.Name, d.Model, d.MemoryBytes, d.Capability, d.Link, d.Threads, max(1, d.Slowdown), d.SMPercent)
}

// costVariables are the environment variables that change how fast torch is or
// how much memory it takes, by exact name or, with a final *, by beginning.
func costVariables() []string {
	return []string{
		"CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING",
		"CUDNN_*", "GLOO_*", "GOMP_*", "KMP_*", "MALLOC_*", "MKL_*", "NCCL_*", "NVIDIA_TF32_OVERRIDE", "OMP_*",
		"OPENBLAS_*", "PYTORCH_*", "TORCHINDUCTOR_*", "TORCH_*", "TRITON_*",
	}
}

// CostEnvironment picks what changes costs out of a list such as os.Environ(),
// sorted. It only goes into the hash: values are never stored or logged.
func CostEnvironment(environ []string) []string {
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if slices.ContainsFunc(costVariables(), func(pattern string) bool {
			beginning, open := strings.CutSuffix(pattern, "*")
			return name == pattern || open && strings.HasPrefix(name, beginning)
		}) {
			out = append(out, entry)
		}
	}
	slices.Sort(out)
	return out
}
