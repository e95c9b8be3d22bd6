package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/fleet"
)

func gpu(index int, uuid, problem string) profiler.Device {
	return profiler.Device{Index: index, UUID: uuid, GPUUUID: uuid, Name: "H200", Kind: profiler.KindCUDA, Problem: problem,
		MemoryBytes: 1 << 30, FreeMemoryBytes: 1 << 30, UsableMemoryBytes: 1 << 30, PCIBusID: "0000:0" + string(rune('1'+index)) + ":00.0"}
}

func processor() fleet.Fleet {
	return fleet.Fleet{List: []profiler.Device{{UUID: "CPU-here", Name: "cpu", Kind: profiler.KindCPU,
		MemoryBytes: 8 << 30, FreeMemoryBytes: 8 << 30, UsableMemoryBytes: 8 << 30, Threads: 2}}}
}

func TestDeviceFinder(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	two := fleet.Fleet{List: []profiler.Device{gpu(0, "GPU-aa11", ""), gpu(1, "GPU-ab22", "")}}
	none := fleet.Fleet{Fails: profiler.ErrNoDriver}
	silent := fleet.Fleet{Fails: profiler.ErrCannotAsk}
	cpus := file("cpus.yaml", "devices:\n  - { name: a, kind: cpu, threads: 1, memory: 1GiB }\n  - { name: b, kind: cpu, threads: 1, memory: 1GiB, slowdown: 3 }\n")
	parts := file("parts.yaml", "devices:\n  - { name: a, kind: cuda, index: 0, sm_percent: 40, memory: 256MiB }\n")
	cases := map[string]struct {
		spec    string
		gpus    fleet.Fleet
		environ []string
		want    string // UUIDs, or what the error says
		class   error
	}{
		"all GPUs":                              {"", two, nil, "GPU-aa11 GPU-ab22", nil},
		"no GPU: the processor":                 {"", none, nil, "CPU-here", nil},
		"a driver that does not answer":         {"", silent, nil, "could not ask", ErrMachine},
		"a silent driver is no matter for cpus": {cpus, silent, nil, "virtual-a virtual-b", nil},
		"a GPU with a problem is left out":      {"", fleet.Fleet{List: []profiler.Device{gpu(0, "GPU-aa11", "is lost"), gpu(1, "GPU-ab22", "")}}, nil, "GPU-ab22", nil},
		"no GPU can be used":                    {"", fleet.Fleet{List: []profiler.Device{gpu(0, "GPU-aa11", "is lost")}}, nil, "is lost", ErrMachine},
		"user case 45: hidden by the user":      {"", two, []string{"CUDA_VISIBLE_DEVICES=GPU-ab"}, "GPU-ab22", nil},
		"user case 45: ambiguous":               {"", two, []string{"CUDA_VISIBLE_DEVICES=GPU-a"}, "matches 2", ErrUsage},
		"picked by index, in that order":        {"1,0", two, []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, "GPU-ab22 GPU-aa11", nil},
		"picked by UUID, with the processor":    {"GPU-ab, cpu", two, nil, "GPU-ab22 CPU-here", nil},
		"picked twice":                          {"GPU-aa,GPU-aa11", two, nil, "is there twice", ErrUsage},
		"an index too high":                     {"7", two, nil, "there is no GPU 7: 2 can be seen here", ErrUsage},
		"an ambiguous UUID":                     {"GPU-a", two, nil, "matches 2 devices", ErrUsage},
		"neither file nor device":               {"fast", two, nil, `"fast" is no file`, ErrUsage},
		"an empty entry":                        {"0,,1", two, nil, "empty", ErrUsage},
		"parts of a GPU":                        {parts, two, nil, "virtual-a", nil},
		"parts of a GPU where there is none":    {parts, none, nil, "there is no GPU here", ErrMachine},
		"a file with an unknown field":          {file("x.yaml", "devices:\n  - { name: a, kind: cpu, memory: 1GiB, speed: 3 }\n"), none, nil, "speed", ErrUsage},
		"a file with a bad size":                {file("s.yaml", "devices:\n  - { name: a, kind: cpu, memory: much }\n"), none, nil, "devices[0].memory", ErrUsage},
		"a file with two devices of one name":   {file("n.yaml", "devices:\n  - { name: a, kind: cpu, memory: 1GiB }\n  - { name: a, kind: cpu, memory: 1GiB }\n"), none, nil, "a", ErrUsage},
		"a file that is not there":              {filepath.Join(dir, "none.yaml"), none, nil, "none.yaml", ErrUsage},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := DeviceFinder{Spec: c.spec, Environ: c.environ, GPUs: c.gpus, CPU: processor()}.Find(context.Background())
			if c.class != nil {
				if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v", err)
				}
				return
			}
			var uuids []string
			for _, d := range found.Chosen {
				uuids = append(uuids, d.UUID)
			}
			if got := strings.Join(uuids, " "); err != nil || got != c.want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}
