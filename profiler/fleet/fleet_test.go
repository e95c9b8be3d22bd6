package fleet

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

func read(t *testing.T, name string) Fleet {
	t.Helper()
	f, err := Read(filepath.Join("..", "..", "testdata", "fleets", name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestEveryFixtureIsRead(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/fleets/*.json")
	if err != nil || len(paths) < 5 {
		t.Fatalf("got %v, %v", paths, err)
	}
	for _, path := range paths {
		if f := read(t, filepath.Base(path)); f.Note == "" {
			t.Errorf("%s: a fleet needs a note on where it comes from", path)
		}
	}
}

func TestMixedFour(t *testing.T) {
	devices, err := read(t, "mixed-four.json").Devices(context.Background())
	if err != nil || len(devices) != 4 {
		t.Fatalf("got %v, %v", devices, err)
	}
	t4 := devices[1]
	if t4.GPUUUID != t4.UUID || t4.Index != 1 || t4.Capability != (profiler.Capability{7, 5}) || t4.DTypes[0] != profiler.Float16 ||
		t4.UsableMemoryBytes != 15782117376 || t4.UsedByOthersBytes != 16106127360-15782117376 || t4.Link.String() != "PCIe 3.0 x16" {
		t.Errorf("got %+v", t4)
	}
	if choice := profiler.CommonDType(devices, profiler.BFloat16, false); choice.DType != profiler.Float16 || len(choice.Reasons) != 3 {
		t.Errorf("got %+v", choice)
	}
}

func TestTroubled(t *testing.T) {
	devices, err := read(t, "troubled.json").Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if usable, out := profiler.Usable(devices); len(usable) != 4 || len(out) != 1 || out[0].Name != "NVIDIA L4" {
		t.Errorf("got %v and %v", usable, out)
	}
	if d := devices[1]; d.MemoryBytes != profiler.Unknown || d.UsableMemoryBytes != profiler.Unknown || d.UsedByOthersBytes != profiler.Unknown {
		t.Errorf("what is left out must be unknown: %+v", d)
	}
	if d := devices[2]; d.UsableMemoryBytes != 11274289152-1073741824 {
		t.Errorf("the reserve is not held back: %+v", d)
	}
	if d := devices[4]; d.GPUUUID == d.UUID || d.Index != 3 {
		t.Errorf("a slice has a parent: %+v", d)
	}
}

func TestFailuresDiffer(t *testing.T) {
	_, err := read(t, "no-driver.json").Devices(context.Background())
	if !errors.Is(err, profiler.ErrNoDriver) || errors.Is(err, profiler.ErrCannotAsk) {
		t.Errorf("got %v", err)
	}
	_, err = read(t, "silent-driver.json").Devices(context.Background())
	if !errors.Is(err, profiler.ErrCannotAsk) || errors.Is(err, profiler.ErrNoDriver) {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := read(t, "two-hosts.json").Devices(ended); !errors.Is(err, profiler.ErrCannotAsk) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestBadFleets(t *testing.T) {
	cases := map[string]struct{ data, want string }{
		"truncated":     {`{"version":1,"devices":[{`, "devices[0]: the file is truncated"},
		"version":       {`{"version":3,"devices":[]}`, "version: is 3, must be 1"},
		"no devices":    {`{"version":1}`, "devices: is missing"},
		"unknown field": {`{"version":1,"devices":[{"uuid":"a","name":"n","kind":"cuda","memory":1}]}`, "devices[0].memory: is an unknown field"},
		"same UUID":     {`{"version":1,"devices":[{"uuid":"a","name":"n","kind":"cuda"},{"uuid":"a","name":"n","kind":"cuda"}]}`, "devices[1].uuid: a is also devices[0]"},
		"kind":          {`{"version":1,"devices":[{"uuid":"a","name":"n","kind":"tpu"}]}`, `devices[0].kind: is "tpu"`},
		"more free":     {`{"version":1,"devices":[{"uuid":"a","name":"n","kind":"cuda","memory_bytes":1,"free_memory_bytes":2}]}`, "devices[0].free_memory_bytes: is 2, more than memory_bytes 1"},
		"fails":         {`{"version":1,"fails":"maybe"}`, `fails: is "maybe"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f.json", []byte(c.data))
			if !errors.Is(err, profiler.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
