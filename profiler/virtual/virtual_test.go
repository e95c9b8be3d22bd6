package virtual

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

const designFile = `# the example of the documentation, cuda part
devices:
  - { name: big,  kind: cuda, index: 0, sm_percent: 40, memory: 40GiB }
  - { name: half, kind: cuda, index: 1, memory: 1.5GiB, slowdown: 1.5, threads: 2 }
  - { name: named, kind: cuda, uuid: GPU-b, memory: 512MiB }
`

func TestParse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices.yaml")
	if err := os.WriteFile(path, []byte(designFile), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{
		{Name: "big", Kind: "cuda", Index: 0, SMPercent: 40, MemoryBytes: 40 << 30, Slowdown: 1},
		{Name: "half", Kind: "cuda", Index: 1, MemoryBytes: 3 << 29, Slowdown: 1.5, Threads: 2},
		{Name: "named", Kind: "cuda", Index: -1, UUID: "GPU-b", MemoryBytes: 512 << 20, Slowdown: 1},
	}
	if !reflect.DeepEqual(f.Devices, want) || f.Kind() != profiler.KindCUDA {
		t.Errorf("got %+v", f.Devices)
	}
	plain, err := Parse("d", []byte("devices: [{name: 7, kind: cpu, memory: 1000}]"))
	if err != nil || plain.Devices[0].Name != "7" || plain.Devices[0].MemoryBytes != 1000 {
		t.Errorf("a number as name and plain bytes: %+v, %v", plain, err)
	}
	if _, err := Read(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestBadFiles(t *testing.T) {
	one := func(fields string) string { return "devices:\n  - {" + fields + "}\n" }
	cases := map[string]struct {
		data string
		want []string
	}{
		"empty":              {"", []string{"the file is empty"}},
		"not YAML":           {"devices: [", []string{"is not YAML"}},
		"two documents":      {"devices: []\n---\ndevices: []", []string{"more than one YAML document"}},
		"a list":             {"- a", []string{"must be a mapping"}},
		"no devices":         {"divices: []", []string{"devices: is missing", "divices: is an unknown field (line 1); known are devices"}},
		"devices is text":    {"devices: all", []string{"devices: must be a list"}},
		"zero devices":       {"devices: []", []string{"devices: is empty"}},
		"a device is text":   {"devices: [big]", []string{"devices[0]: must be a mapping"}},
		"unknown field":      {one("name: a, kind: cpu, memory: 1GiB, speed: 3"), []string{"devices[0].speed: is an unknown field (line 2)"}},
		"field twice":        {one("name: a, kind: cpu, memory: 1GiB, memory: 2GiB"), []string{"devices[0].memory: is given twice"}},
		"bad size":           {one("name: a, kind: cpu, memory: 40G"), []string{`devices[0].memory: "40G" has the unknown unit "G"`}},
		"no memory":          {one("name: a, kind: cpu"), []string{"devices[0].memory: is missing"}},
		"zero memory":        {one("name: a, kind: cpu, memory: 0"), []string{"devices[0].memory: \"0\" is no memory"}},
		"negative memory":    {one("name: a, kind: cpu, memory: -1GiB"), []string{"devices[0].memory: \"-1GiB\" is not a memory size"}},
		"memory as a list":   {one("name: a, kind: cpu, memory: [1GiB]"), []string{"devices[0].memory: \"\" is not a memory size"}},
		"no name":            {one("kind: cpu, memory: 1GiB"), []string{"devices[0].name: is missing"}},
		"null name":          {one("name: , kind: cpu, memory: 1GiB"), []string{"devices[0].name: must be a text"}},
		"name with a slash":  {one("name: a/b, kind: cpu, memory: 1GiB"), []string{`devices[0].name: "a/b" must be letters`}},
		"unknown kind":       {one("name: a, kind: tpu, memory: 1GiB"), []string{`devices[0].kind: "tpu" is unknown`}},
		"index on a cpu":     {one("name: a, kind: cpu, memory: 1GiB, index: 0"), []string{"devices[0].index: is for cuda devices only"}},
		"cuda without index": {one("name: a, kind: cuda, memory: 1GiB"), []string{"devices[0].index: is missing"}},
		"index and uuid":     {one("name: a, kind: cuda, memory: 1GiB, index: 0, uuid: GPU-a"), []string{"devices[0].uuid: is given beside index"}},
		"index as text":      {one("name: a, kind: cuda, memory: 1GiB, index: first"), []string{`devices[0].index: is "first", must be a whole number`}},
		"negative index":     {one("name: a, kind: cuda, memory: 1GiB, index: -1"), []string{`devices[0].index: is "-1"`}},
		"slowdown below 1":   {one("name: a, kind: cpu, memory: 1GiB, slowdown: 0.5"), []string{`devices[0].slowdown: is "0.5", must be a number from 1`}},
		"slowdown NaN":       {one("name: a, kind: cpu, memory: 1GiB, slowdown: nan"), []string{`devices[0].slowdown: is "nan"`}},
		"sm_percent 0":       {one("name: a, kind: cuda, index: 0, memory: 1GiB, sm_percent: 0"), []string{`devices[0].sm_percent: is "0", must be a whole number from 1 to 100`}},
		"sm_percent 101":     {one("name: a, kind: cuda, index: 0, memory: 1GiB, sm_percent: 101"), []string{`devices[0].sm_percent: is "101"`}},
		"threads 0":          {one("name: a, kind: cpu, memory: 1GiB, threads: 0"), []string{`devices[0].threads: is "0"`}},
		"two of one name":    {"devices:\n- {name: a, kind: cpu, memory: 1}\n- {name: a, kind: cpu, memory: 1}", []string{`devices[1].name: "a" is also the name of devices[0]`}},
		"mixed kinds":        {"devices:\n- {name: a, kind: cpu, memory: 1}\n- {name: b, kind: cuda, index: 0, memory: 1}", []string{"devices: mix kinds: devices[1] is cuda, devices[0] is cpu"}},
		"many at once": {"devices:\n- {name: a, kind: cpu, memory: 4X, colour: red}\n- {name: a, kind: cpu, slowdown: 0}", []string{
			"5 problems", "devices[0].memory", "devices[0].colour", "devices[1].memory: is missing", "devices[1].slowdown", "devices[1].name"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("d.yaml", []byte(c.data))
			if !errors.Is(err, profiler.ErrInvalid) {
				t.Fatalf("got %v, want an ErrInvalid", err)
			}
			for _, want := range append(c.want, "d.yaml: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("message lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

type fixed struct {
	devices []profiler.Device
	err     error
}

var _ profiler.Provider = fixed{}

func (f fixed) Devices(context.Context) ([]profiler.Device, error) { return f.devices, f.err }

func realGPUs() []profiler.Device {
	return []profiler.Device{
		{Kind: "cuda", UUID: "GPU-aaaa", GPUUUID: "GPU-aaaa", Name: "H200", Index: 3, MemoryBytes: 140 << 30, FreeMemoryBytes: 100 << 30, UsableMemoryBytes: 100 << 30, Capability: profiler.Capability{9, 0}},
		{Kind: "cuda", UUID: "GPU-bbbb", GPUUUID: "GPU-bbbb", Name: "L4", MemoryBytes: profiler.Unknown, FreeMemoryBytes: profiler.Unknown},
		{Kind: "cuda", UUID: "GPU-bccc", Name: "T4", Index: 2, Problem: "does not answer within 5s"},
		{Kind: "cpu", UUID: "CPU-host", Name: "Xeon", Threads: 16, MemoryBytes: 1 << 30, FreeMemoryBytes: 1 << 30},
	}
}

func TestProviderLaysTheFileOverRealDevices(t *testing.T) {
	f, err := Parse("d.yaml", []byte(strings.Replace(designFile, "GPU-b,", "gpu-BBBB,", 1)))
	if err != nil {
		t.Fatal(err)
	}
	devices, err := Provider{File: f, Under: fixed{devices: realGPUs()}}.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	big := devices[0]
	if big.UUID != "virtual-big" || big.GPUUUID != "GPU-aaaa" || big.Name != "big" || big.Model != "H200" || !big.Virtual ||
		big.MemoryBytes != 40<<30 || big.UsableMemoryBytes != 40<<30 || big.SMPercent != 40 || big.Capability != (profiler.Capability{9, 0}) || big.Index != 3 {
		t.Errorf("got %+v", big)
	}
	if devices[1].GPUUUID != "GPU-bbbb" || devices[1].Slowdown != 1.5 || devices[1].Threads != 2 || devices[2].GPUUUID != "GPU-bbbb" {
		t.Errorf("got %+v", devices[1:])
	}
	_, err = Provider{File: f, Under: fixed{err: profiler.ErrNoDriver}}.Devices(context.Background())
	if !errors.Is(err, profiler.ErrNoDriver) {
		t.Errorf("the class of the failure is lost: %v", err)
	}
}

func TestResolveProblems(t *testing.T) {
	cases := map[string]struct {
		data string
		want string
	}{
		"no such GPU":          {"{name: a, kind: cuda, index: 3, memory: 1}", "devices[0].index: there is no GPU 3: 3 can be used here"},
		"unknown UUID":         {"{name: a, kind: cuda, uuid: GPU-z, memory: 1}", "devices[0].uuid: GPU-z matches no GPU here"},
		"ambiguous UUID":       {"{name: a, kind: cuda, uuid: GPU-b, memory: 1}", "devices[0].uuid: GPU-b matches 2 devices"},
		"device that is stuck": {"{name: a, kind: cuda, index: 2, memory: 1}", "devices[0].index: GPU 2 T4 cannot be used: it does not answer within 5s"},
		"more than the GPU has": {"{name: a, kind: cuda, index: 0, memory: 90GiB}, {name: b, kind: cuda, uuid: GPU-a, memory: 60GiB}",
			"devices[1].memory: with this device GPU 3 H200 hands out 150.0 GiB (161061273600 bytes), but has 140.0 GiB"},
		"more than is free": {"{name: a, kind: cuda, index: 0, memory: 120GiB}", "only 100.0 GiB (107374182400 bytes) are free now"},
		"unknown total":     {"{name: a, kind: cuda, index: 1, memory: 900GiB}", ""},
		"cpu":               {"{name: a, kind: cpu, threads: 1, memory: 9GiB}", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("d.yaml", []byte("devices: ["+c.data+"]"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Resolve(realGPUs())
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if !errors.Is(err, profiler.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	f, err := Parse("d.yaml", []byte("devices: [{name: a, kind: cpu, memory: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Resolve(nil); err == nil || !strings.Contains(err.Error(), "there is no cpu device") {
		t.Errorf("got %v", err)
	}
	devices, err := f.Resolve(realGPUs())
	if err != nil || devices[0].GPUUUID != "" || devices[0].Threads != 0 {
		t.Errorf("got %+v, %v", devices, err)
	}
}
