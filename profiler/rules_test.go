package profiler

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func gpu(index int, name string, major, minor int) Device {
	return Device{Kind: KindCUDA, Index: index, Name: name, Capability: Capability{major, minor}}
}

func TestCommonDType(t *testing.T) {
	a100, t4 := gpu(0, "A100", 8, 0), gpu(1, "Tesla T4", 7, 5)
	v100, p40 := gpu(2, "V100", 7, 0), gpu(3, "P40", 6, 1)
	m40, odd := gpu(4, "M40", 5, 2), gpu(5, "Odd", 0, 0)
	cpu := Device{Kind: KindCPU, Name: "Xeon"}
	cases := map[string]struct {
		devices  []Device
		wanted   DType
		emulated bool
		want     DTypeChoice
	}{
		"bf16 everywhere":         {devices: []Device{a100, gpu(1, "L4", 8, 9)}, wanted: BFloat16, want: DTypeChoice{DType: BFloat16}},
		"fp64 is computed by all": {devices: []Device{a100, m40, odd, cpu}, wanted: Float64, want: DTypeChoice{DType: Float64}},
		"fp32 is never a doubt":   {devices: []Device{a100, m40, odd, cpu}, wanted: Float32, want: DTypeChoice{DType: Float32}},
		"one T4": {devices: []Device{a100, t4}, wanted: BFloat16, want: DTypeChoice{DType: Float16, LossScaling: true, Reasons: []string{
			"GPU 1 Tesla T4 (cc 7.5) has no native bf16; bf16 would be emulated; plan uses fp16 with loss scaling on all devices; --allow-emulated-bf16 to keep it"}}},
		"8.0 + 7.5 + 7.0 + 6.1": {devices: []Device{a100, t4, v100, p40}, wanted: BFloat16, want: DTypeChoice{DType: Float16, LossScaling: true, Reasons: []string{
			"GPU 1 Tesla T4 (cc 7.5) has no native bf16", "GPU 2 V100 (cc 7.0) has no native bf16",
			"GPU 3 P40 (cc 6.1) has no native bf16; bf16 would be emulated; plan uses fp16 with loss scaling on all devices; --allow-emulated-bf16 to keep it"}}},
		"emulation allowed": {devices: []Device{a100, t4}, wanted: BFloat16, emulated: true, want: DTypeChoice{DType: BFloat16, Reasons: []string{
			"GPU 1 Tesla T4 (cc 7.5) has no native bf16; it is emulated there, which is slow (--allow-emulated-bf16)"}}},
		"too old for fp16": {devices: []Device{a100, m40}, wanted: BFloat16, want: DTypeChoice{DType: Float32, Reasons: []string{
			"GPU 4 M40 (cc 5.2) has no native bf16; bf16 would be emulated; plan uses fp32 on all devices; --allow-emulated-bf16 to keep it"}}},
		"fp16 and a processor": {devices: []Device{a100, cpu}, wanted: Float16, want: DTypeChoice{DType: Float32, Reasons: []string{
			"CPU Xeon has no native fp16; plan uses fp32 on all devices"}}},
		"fp16 wanted and there": {devices: []Device{t4}, wanted: Float16, want: DTypeChoice{DType: Float16, LossScaling: true}},
		"unknown capability": {devices: []Device{odd}, wanted: BFloat16, want: DTypeChoice{DType: Float32, Reasons: []string{
			"GPU 5 Odd (cc unknown) has no native bf16; bf16 would be emulated; plan uses fp32 on all devices; --allow-emulated-bf16 to keep it"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := CommonDType(c.devices, c.wanted, c.emulated)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestArchListSupports(t *testing.T) {
	build := ArchList{"sm_70", "sm_75", "sm_80", "sm_90a", "sm_120", "compute_120"}
	cases := map[Capability]bool{
		{6, 0}: false, {6, 1}: false, {7, 0}: true, {7, 2}: true, {7, 5}: true, {8, 0}: true, {8, 6}: true, {8, 9}: true,
		{9, 0}: true, {10, 0}: false, {12, 0}: true, {12, 1}: true, {13, 0}: true,
	}
	for c, want := range cases {
		if got := build.Supports(c); got != want {
			t.Errorf("%s: got %v, want %v", c, got, want)
		}
	}
	if (ArchList{"sm_90a"}).Supports(Capability{9, 1}) {
		t.Error("code for exactly 9.0 must not count for 9.1")
	}
	if (ArchList{"bogus", "sm_", "sm_x"}).Supports(Capability{8, 0}) {
		t.Error("entries that cannot be read support nothing")
	}
}

func TestLeaveOutUnsupported(t *testing.T) {
	build := ArchList{"sm_70", "sm_75", "sm_120"}
	p100 := gpu(3, "P100", 6, 0)
	kept, notes, err := LeaveOutUnsupported([]Device{gpu(0, "V100", 7, 0), p100, {Kind: KindCPU}}, build)
	if err != nil || len(kept) != 2 {
		t.Fatalf("got %v, %v", kept, err)
	}
	want := "GPU 3 P100 (sm_60) is not in this torch build (sm_70 to sm_120); left out. Install a build with sm_60 to use it"
	if len(notes) != 1 || notes[0] != want {
		t.Errorf("got %q, want %q", notes, want)
	}
	_, _, err = LeaveOutUnsupported([]Device{p100}, build)
	if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "P100") {
		t.Errorf("no card left: got %v", err)
	}
	_, _, err = LeaveOutUnsupported([]Device{gpu(0, "V100", 7, 0)}, nil)
	if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "no CUDA code at all") {
		t.Errorf("a build without CUDA: got %v", err)
	}
	if _, _, err = LeaveOutUnsupported(nil, build); err != nil {
		t.Errorf("nothing to check is no failure: %v", err)
	}
}

func TestArchListString(t *testing.T) {
	cases := map[string]ArchList{
		"sm_50 to sm_90, PTX from 9.0": {"sm_90", "compute_90", "sm_50"},
		"sm_80":                        {"sm_80"},
		"no CUDA code at all":          nil,
	}
	for want, l := range cases {
		if got := l.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
