package profiler

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const goodProfile = `{"version":1,"fingerprint":"sha256:ab","future":{"a":[1,2]},
 "model":{"name":"m","parameters":100,"state_bytes_per_parameter":16,"later":true,"units":[{"class":"block","count":2,"parameters":40,"x":1},{"class":"root","count":1,"parameters":20,"trainable_parameters":0,"whole_batch":true}]},
 "devices":[{"rank":0,"kind":"cuda","name":"a","uuid":"GPU-1","capability":[8,0],"bf16":true,"memory_bytes":1000,"usable_memory_bytes":900,"reserved_bytes":10,"note":"n","costs":{
   "block":{"forward_ms":{"points":[[1,2.5],[4,8]],"tail":{"slope":2,"intercept":0.5,"fit":"ls"}},"backward_ms":{"points":[],"tail":{"slope":4,"intercept":0}},"memory_bytes":{"points":[[1,100]],"tail":{"slope":10,"intercept":90}},"kept_bytes_per_sample":{"keep":12,"recompute":3}},
   "root":{"forward_ms":{"points":[],"tail":{"slope":1,"intercept":0}},"backward_ms":{"points":[],"tail":{"slope":1,"intercept":0}},"memory_bytes":{"points":[],"tail":{"slope":1,"intercept":0}}}}}],
 "collectives":{"block":{"all_gather_ms":1,"reduce_scatter_ms":2},"root":{"all_gather_ms":1,"reduce_scatter_ms":2}},"ragged_factor":1.1,"microbatch_overhead_ms":{"forward":0,"backward":0.5},
 "script":{"batch_per_rank":8,"data":"fixed","samples":64},"measured":{"torch":"2.15.0","spread":{"block":0.02}}}`

func TestProfileRewriteKeepsEverything(t *testing.T) {
	p, err := ParseProfile("p.json", []byte(goodProfile))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Model.Units[0].Trainable(); got != 40 {
		t.Errorf("trainable parameters not given mean all: got %d", got)
	}
	if got := p.Model.Units[1].Trainable(); got != 0 {
		t.Errorf("an explicit 0 stays 0: got %d", got)
	}
	path := filepath.Join(t.TempDir(), "deep", "p.json")
	if err := WriteProfile(path, p); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var before, after any
	if err := json.Unmarshal([]byte(goodProfile), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(written, &after); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("rewriting changed the profile:\n%v\n%v", before, after)
	}
	again, err := ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := again.Encode(); err != nil || !bytes.Equal(second, written) {
		t.Errorf("the second writing differs from the first: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files left beside the profile: %v, %v", left, err)
	}
}

func TestBadProfiles(t *testing.T) {
	edit := func(pairs ...string) string {
		s := strings.NewReplacer(pairs...).Replace(goodProfile)
		if s == goodProfile {
			t.Fatalf("edit %q changed nothing", pairs)
		}
		return s
	}
	cases := map[string]struct {
		data string
		want []string
	}{
		"empty":               {"", []string{"the file is empty"}},
		"truncated":           {goodProfile[:strings.Index(goodProfile, `"GPU-1"`)], []string{"devices[0].uuid: the file is truncated"}},
		"NaN":                 {edit("2.5", "NaN"), []string{"devices[0].costs.block.forward_ms.points[0][1]: is NaN"}},
		"Infinity":            {edit(`"ragged_factor":1.1`, `"ragged_factor":Infinity`), []string{"ragged_factor: is Infinity"}},
		"not JSON":            {"version: 1", []string{"is not JSON (line 1)"}},
		"not an object":       {"[]", []string{"must be an object, is a list"}},
		"another version":     {edit(`"version":1`, `"version":2`), []string{"version: is 2; this cephalorun reads version 1 only"}},
		"no version":          {edit(`"version":1,`, ``), []string{"version: is missing"}},
		"missing parameters":  {edit(`"parameters":40,`, ``), []string{"model.units[0].parameters: is missing"}},
		"missing costs":       {edit(`"root":{"forward`, `"other":{"forward`), []string{"devices[0].costs.root: is missing"}},
		"missing tail":        {edit(`,"tail":{"slope":10,"intercept":90}`, ``), []string{"devices[0].costs.block.memory_bytes.tail: is missing"}},
		"text for a number":   {edit(`"rank":0`, `"rank":"0"`), []string{`devices[0].rank: must be a whole number, is "0"`}},
		"null for a number":   {edit(`"rank":0`, `"rank":null`), []string{`devices[0].rank: must be a whole number, is null`}},
		"fraction":            {edit(`"memory_bytes":1000`, `"memory_bytes":1000.5`), []string{"devices[0].memory_bytes: must be a whole number, is 1000.5"}},
		"zero devices":        {`{"version":1,"model":{"name":"m","parameters":1,"state_bytes_per_parameter":16,"units":[{"class":"a","count":1,"parameters":1}]},"devices":[],"collectives":{"a":{"all_gather_ms":0,"reduce_scatter_ms":0}},"ragged_factor":1,"microbatch_overhead_ms":{"forward":0,"backward":0}}`, []string{"devices: is empty"}},
		"negative cost":       {edit("2.5", "-2.5"), []string{"points[0]: is -2.5, must be 0 to"}},
		"points out of order": {edit("[4,8]", "[1,8]"), []string{"points[1]: has microbatch 1: they must be whole numbers from 1 on that grow"}},
		"tail below zero":     {edit(`"slope":10,"intercept":90`, `"slope":10,"intercept":-90`), []string{"memory_bytes.tail: gives -70 for a microbatch of 2"}},
		"falling tail":        {edit(`"slope":10,`, `"slope":-10,`), []string{"memory_bytes.tail.slope: is -10"}},
		"absurd memory":       {edit(`"memory_bytes":1000`, `"memory_bytes":9000000000000000000`), []string{"devices[0].memory_bytes: is 9e+18"}},
		"usable above total":  {edit(`"usable_memory_bytes":900`, `"usable_memory_bytes":1900`), []string{"usable_memory_bytes: is 1900, more than"}},
		"ragged below one":    {edit(`"ragged_factor":1.1`, `"ragged_factor":0.5`), []string{"ragged_factor: is 0.5, must be 1 to"}},
		"unknown kind":        {edit(`"kind":"cuda"`, `"kind":"tpu"`), []string{`devices[0].kind: is "tpu", must be cuda or cpu`}},
		"class twice":         {edit(`"class":"root"`, `"class":"block"`), []string{`model.units[1].class: "block" is also model.units[0]`}},
		"too many trainable":  {edit(`"trainable_parameters":0`, `"trainable_parameters":21`), []string{"model.units[1].trainable_parameters: is 21, must be 0 to 20"}},
		"many at once": {edit(`"rank":0`, `"rank":5`, `"parameters":40,`, ``, `"ragged_factor":1.1,`, ``), []string{
			"3 problems", "model.units[0].parameters: is missing", "ragged_factor: is missing", "devices[0].rank: is 5, and the ranks of 1 listed are 0 to 0"}},
		"no version hides nothing": {edit(`"version":1,`, ``, `"rank":0`, `"rank":-1`), []string{"version: is missing", "devices[0].rank: is -1"}},
		"a field twice":            {edit(`"rank":0`, `"rank":0,"rank":1`), []string{"devices[0].rank: is given twice"}},
		"a cost twice":             {edit(`"intercept":90`, `"intercept":90,"intercept":91`), []string{"devices[0].costs.block.memory_bytes.tail.intercept: is given twice"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseProfile("p.json", []byte(c.data))
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("got %v, want an ErrInvalid", err)
			}
			for _, want := range append(c.want, "p.json: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("message lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestDuplicateRanksAndUUIDs(t *testing.T) {
	p, err := ParseProfile("p.json", []byte(goodProfile))
	if err != nil {
		t.Fatal(err)
	}
	p.Devices = append(p.Devices, p.Devices[0])
	err = p.Validate()
	if err == nil || !strings.Contains(err.Error(), "devices[1].rank: 0 is also the rank of devices[0]") || !strings.Contains(err.Error(), "devices[1].uuid: GPU-1 is also devices[0]") {
		t.Errorf("got %v", err)
	}
}

func TestWriteRefusesWhatCannotBeRead(t *testing.T) {
	p, err := ParseProfile("p.json", []byte(goodProfile))
	if err != nil {
		t.Fatal(err)
	}
	p.FixedMs = math.NaN()
	path := filepath.Join(t.TempDir(), "p.json")
	if err := WriteProfile(path, p); err == nil || !strings.Contains(err.Error(), "fixed_ms: is NaN") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a bad profile left a file: %v", err)
	}
}

func TestReadMissingProfile(t *testing.T) {
	if _, err := ReadProfile(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestPlannerCasesAreProfiles(t *testing.T) {
	paths, err := filepath.Glob("../testdata/planner-cases/*.profile.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no planner cases: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			p, err := ReadProfile(path)
			if err != nil {
				t.Fatal(err)
			}
			data, err := p.Encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseProfile("again", data)
			if err != nil || !reflect.DeepEqual(p, again) {
				t.Errorf("rewriting changed it: %v", err)
			}
		})
	}
}

func TestCostAt(t *testing.T) {
	points := Cost{Points: [][2]float64{{2, 10}, {4, 20}, {8, 30}}, Tail: Tail{Slope: 3, Intercept: 8}}
	line := Cost{Tail: Tail{Slope: 2, Intercept: 1}}
	cases := map[string]struct {
		cost Cost
		m    float64
		want float64
	}{
		"nothing":               {points, 0, 0},
		"below the first point": {points, 1, 10},
		"on a point":            {points, 4, 20},
		"between points":        {points, 3, 15},
		"between later points":  {points, 5, 22.5},
		"on the last point":     {points, 8, 30},
		"beyond":                {points, 9, 35},
		"line only":             {line, 5, 11},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.cost.At(c.m); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add([]byte(goodProfile))
	f.Add([]byte(`{"version":1,"model":[]}`))
	f.Add([]byte(`{"version":1,"devices":[{"costs":{"":null}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProfile("fuzz", data)
		if err != nil {
			return
		}
		out, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseProfile("again", out)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		second, err := again.Encode()
		if err != nil || !bytes.Equal(out, second) {
			t.Fatalf("writing is not stable: %v", err)
		}
	})
}
