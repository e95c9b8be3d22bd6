package cache

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

func profile(fingerprint string) profiler.Profile {
	line := profiler.Cost{Tail: profiler.Tail{Slope: 1}}
	return profiler.Profile{
		Version: 1, Fingerprint: fingerprint, RaggedFactor: 1,
		Model:       profiler.Model{Name: "m", Parameters: 10, StateBytesPerParameter: 16, Units: []profiler.Unit{{Class: "a", Count: 1, Parameters: 10}}},
		Devices:     []profiler.ProfileDevice{{Kind: "cpu", Name: "c", UUID: "CPU-1", MemoryBytes: 100, UsableMemoryBytes: 90, Costs: map[string]profiler.UnitCosts{"a": {ForwardMs: line, BackwardMs: line, MemoryBytes: line}}}},
		Collectives: map[string]profiler.Collective{"a": {}},
	}
}

func TestStoreAndLookup(t *testing.T) {
	c := New(filepath.Join(t.TempDir(), "state"))
	one, two := Fingerprint(Inputs{Torch: "1"}), Fingerprint(Inputs{Torch: "2"})
	if _, err := c.Lookup(one); !errors.Is(err, ErrNotFound) {
		t.Fatalf("empty cache: %v", err)
	}
	if entries, err := c.List(); err != nil || len(entries) != 0 {
		t.Fatalf("empty cache: %v, %v", entries, err)
	}
	path, err := c.Store(profile(one))
	if err != nil || path != c.Path(one) || filepath.Base(path) != one+".json" {
		t.Fatalf("got %q, %v", path, err)
	}
	if p, err := c.Lookup(one); err != nil || p.Fingerprint != one || p.Model.Name != "m" {
		t.Fatalf("got %+v, %v", p, err)
	}
	if _, err := c.Store(profile("")); err == nil {
		t.Error("a profile without fingerprint was stored")
	}
	if _, err := c.Lookup("../../etc/passwd"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("a path is no fingerprint: %v", err)
	}
	if path, err = c.Store(profile(two)); err != nil {
		t.Fatal(err)
	}
	older := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, older, older); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "notes.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := c.List()
	if err != nil || len(entries) != 2 || entries[0].Fingerprint != one || entries[1].Fingerprint != two || entries[0].Err != nil {
		t.Errorf("got %+v, %v", entries, err)
	}
}

func TestCorruptEntriesAreNamedAndReplaced(t *testing.T) {
	fingerprint := Fingerprint(Inputs{Torch: "1"})
	cases := map[string]struct {
		damage func(data []byte) []byte
		want   string
	}{
		"truncated":       {func(d []byte) []byte { return d[:len(d)/2] }, "truncated"},
		"empty":           {func([]byte) []byte { return nil }, "the file is empty"},
		"another version": {func(d []byte) []byte { return []byte(strings.Replace(string(d), `"version": 1`, `"version": 9`, 1)) }, "version: is 9"},
		"another run's": {func(d []byte) []byte {
			return []byte(strings.Replace(string(d), fingerprint, Fingerprint(Inputs{}), 1))
		}, "it is the profile of"},
		"a bad number": {func(d []byte) []byte {
			return []byte(strings.Replace(string(d), `"parameters": 10`, `"parameters": -1`, 1))
		}, "model.parameters: is -1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := New(t.TempDir())
			path, err := c.Store(profile(fingerprint))
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, tc.damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = c.Lookup(fingerprint)
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.Path != path || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "measuring again") {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if entries, err := c.List(); err != nil || len(entries) != 1 || entries[0].Err == nil {
				t.Errorf("a listing shows it as damaged: %+v, %v", entries, err)
			}
			if _, err := c.Store(profile(fingerprint)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Lookup(fingerprint); err != nil {
				t.Errorf("after storing again: %v", err)
			}
		})
	}
}

func TestFingerprintCoversEveryInput(t *testing.T) {
	base := func() Inputs {
		return Inputs{
			Sources: []Source{{"script", []byte("x")}}, Args: []string{"--lr", "1"}, Python: "3.12", Torch: "2.15", Driver: "580", Package: "p",
			Devices:     []profiler.Device{{UUID: "GPU-1", Kind: "cuda", Name: "a", MemoryBytes: 100, FreeMemoryBytes: 90, UsableMemoryBytes: 80}},
			Environment: []string{"OMP_NUM_THREADS=1", "NCCL_DEBUG=INFO"},
		}
	}
	same := map[string]func(*Inputs){
		"nothing changed":      func(*Inputs) {},
		"order of environment": func(in *Inputs) { in.Environment = []string{"NCCL_DEBUG=INFO", "OMP_NUM_THREADS=1"} },
		"free memory":          func(in *Inputs) { in.Devices[0].FreeMemoryBytes, in.Devices[0].UsableMemoryBytes = 1, 1 },
		"slowdown 0 and 1":     func(in *Inputs) { in.Devices[0].Slowdown = 1 },
	}
	other := map[string]func(*Inputs){
		"script":         func(in *Inputs) { in.Sources[0].Content = []byte("y") },
		"a module":       func(in *Inputs) { in.Sources = append(in.Sources, Source{"m.py", nil}) },
		"arguments":      func(in *Inputs) { in.Args = []string{"--lr", "2"} },
		"argument split": func(in *Inputs) { in.Args = []string{"--lr 1"} },
		"no arguments":   func(in *Inputs) { in.Args = nil },
		"python":         func(in *Inputs) { in.Python = "3.13" },
		"torch":          func(in *Inputs) { in.Torch = "2.8" },
		"driver":         func(in *Inputs) { in.Driver = "" },
		"package":        func(in *Inputs) { in.Package = "q" },
		"device":         func(in *Inputs) { in.Devices[0].UUID = "GPU-2" },
		"memory limit":   func(in *Inputs) { in.Devices[0].MemoryBytes = 99 },
		"share of a GPU": func(in *Inputs) { in.Devices[0].SMPercent = 40 },
		"slowdown":       func(in *Inputs) { in.Devices[0].Slowdown = 3 },
		"threads":        func(in *Inputs) { in.Devices[0].Threads = 2 },
		"one more":       func(in *Inputs) { in.Devices = append(in.Devices, in.Devices[0]) },
		"environment":    func(in *Inputs) { in.Environment[0] = "OMP_NUM_THREADS=2" },
	}
	want := Fingerprint(base())
	if !fingerprintPattern.MatchString(want) {
		t.Fatalf("got %q", want)
	}
	for name, change := range same {
		in := base()
		change(&in)
		if Fingerprint(in) != want {
			t.Errorf("%s must not change the fingerprint", name)
		}
	}
	seen := map[string]string{want: "unchanged"}
	for name, change := range other {
		in := base()
		change(&in)
		got := Fingerprint(in)
		if twin, ok := seen[got]; ok {
			t.Errorf("%s and %s have one fingerprint", name, twin)
		}
		seen[got] = name
	}
}

func TestCostEnvironment(t *testing.T) {
	got := CostEnvironment([]string{"TORCH_LOGS=x", "SECRET=1", "OMP_NUM_THREADS=4", "PATH=/bin", "PYTORCH_CUDA_ALLOC_CONF=a", "CUDA_LAUNCH_BLOCKING=1", "MY_NCCL_X=1"})
	want := []string{"CUDA_LAUNCH_BLOCKING=1", "OMP_NUM_THREADS=4", "PYTORCH_CUDA_ALLOC_CONF=a", "TORCH_LOGS=x"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestScriptSources(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"train.py":            "import os, torch\nimport model as m, data.text\nfrom pkg import part\nif True:\n    from helpers import (a,\n        b)\nfrom torch import nn # model2\n",
		"model.py":            "from layers import *\nimport train\n",
		"layers.py":           "",
		"helpers/__init__.py": "from .inner import x\nfrom ..outside import y\n",
		"helpers/inner.py":    "from . import sibling\n",
		"helpers/sibling.py":  "",
		"data/text.py":        "",
		"pkg/__init__.py":     "",
		"pkg/part.py":         "",
		"unused.py":           "",
		"model2.py":           "",
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sources, err := ScriptSources(filepath.Join(dir, "train.py"))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, s := range sources {
		paths = append(paths, s.Path)
	}
	want := []string{"script", "data/text.py", "helpers/__init__.py", "helpers/inner.py", "helpers/sibling.py", "layers.py", "model.py", "pkg/__init__.py", "pkg/part.py"}
	if !reflect.DeepEqual(paths, want) {
		t.Errorf("got  %v\nwant %v", paths, want)
	}
	if _, err := ScriptSources(filepath.Join(dir, "none.py")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRefresh(t *testing.T) {
	p := profile("x")
	got := Refresh(p, []profiler.Device{{UUID: "CPU-1", UsableMemoryBytes: 40}, {UUID: "GPU-x", UsableMemoryBytes: 1}})
	if got.Devices[0].UsableMemoryBytes != 40 || p.Devices[0].UsableMemoryBytes != 90 {
		t.Errorf("got %d, original %d", got.Devices[0].UsableMemoryBytes, p.Devices[0].UsableMemoryBytes)
	}
	if got := Refresh(p, []profiler.Device{{UUID: "CPU-1", UsableMemoryBytes: 400}}); got.Devices[0].UsableMemoryBytes != 100 {
		t.Errorf("never above the total: %d", got.Devices[0].UsableMemoryBytes)
	}
	if got := Refresh(p, []profiler.Device{{UUID: "CPU-1", UsableMemoryBytes: profiler.Unknown}}); got.Devices[0].UsableMemoryBytes != 90 {
		t.Errorf("unknown changes nothing: %d", got.Devices[0].UsableMemoryBytes)
	}
}
