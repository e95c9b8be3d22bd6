package profiler

import (
	"fmt"
	"strings"
)

// DType is a type that a model can compute in.
type DType string

// The compute types that are told apart.
const (
	Float32  DType = "float32"
	Float16  DType = "float16"
	BFloat16 DType = "bfloat16"
	// Float64 is computed by every device, by some slowly; nobody plans with it.
	Float64 DType = "float64"
)

// short is the spelling people use in messages.
func (t DType) short() string {
	switch t {
	case Float32:
		return "fp32"
	case Float16:
		return "fp16"
	case BFloat16:
		return "bf16"
	default:
		return string(t)
	}
}

// Compute capabilities from which on a type is computed by the hardware.
var (
	bf16Since = Capability{8, 0}
	fp16Since = Capability{5, 3}
)

// NativeDTypes lists what a device computes without emulation, best first.
// A CUDA device of unknown capability is trusted with float32 only. What torch
// itself calls supported is not asked: it counts emulation.
func NativeDTypes(kind Kind, c Capability) []DType {
	switch {
	case kind == KindCPU:
		return []DType{Float32, BFloat16}
	case c.Known() && c.AtLeast(bf16Since):
		return []DType{BFloat16, Float16, Float32}
	case c.Known() && c.AtLeast(fp16Since):
		return []DType{Float16, Float32}
	default:
		return []DType{Float32}
	}
}

// DTypeChoice is the compute type of a run and why it is that one.
type DTypeChoice struct {
	DType DType
	// LossScaling is needed with float16, whose range is small.
	LossScaling bool
	// Reasons has one sentence for each device that stood in the way; empty
	// when the wanted type is used without reservations.
	Reasons []string
}

// CommonDType chooses one compute type for all devices: never two types in one
// reduction. A wanted type that some device lacks is replaced: bfloat16 by
// float16 with loss scaling, and that by float32. allowEmulated keeps bfloat16.
func CommonDType(devices []Device, wanted DType, allowEmulated bool) DTypeChoice {
	lacking := without(devices, wanted)
	if len(lacking) == 0 {
		return DTypeChoice{DType: wanted, LossScaling: wanted == Float16}
	}
	if wanted == BFloat16 && allowEmulated {
		return DTypeChoice{DType: wanted, Reasons: reasons(lacking, wanted, "it is emulated there, which is slow (--allow-emulated-bf16)")}
	}
	choice := DTypeChoice{DType: Float32}
	ending := fmt.Sprintf("plan uses %s on all devices", Float32.short())
	if wanted == BFloat16 && len(without(devices, Float16)) == 0 {
		choice = DTypeChoice{DType: Float16, LossScaling: true}
		ending = "plan uses fp16 with loss scaling on all devices"
	}
	if wanted == BFloat16 {
		ending = "bf16 would be emulated; " + ending + "; --allow-emulated-bf16 to keep it"
	}
	choice.Reasons = reasons(lacking, wanted, ending)
	return choice
}

func without(devices []Device, t DType) []Device {
	if t == Float64 {
		return nil
	}
	var out []Device
	for _, d := range devices {
		if !contains(NativeDTypes(d.Kind, d.Capability), t) {
			out = append(out, d)
		}
	}
	return out
}

func contains(types []DType, t DType) bool {
	for _, have := range types {
		if have == t {
			return true
		}
	}
	return false
}

// reasons names every device; the consequence follows the last one.
func reasons(lacking []Device, t DType, ending string) []string {
	var out []string
	for _, d := range lacking {
		out = append(out, fmt.Sprintf("%s has no native %s", capabilityLabel(d), t.short()))
	}
	out[len(out)-1] += "; " + ending
	return out
}

func capabilityLabel(d Device) string {
	var parts []string
	parts = append(parts, d.Label())
	if d.Kind == KindCUDA {
		if d.Capability.Known() {
			parts = append(parts, "(cc "+d.Capability.String()+")")
		} else {
			parts = append(parts, "(cc unknown)")
		}
	}
	return strings.Join(parts, " ")
}
