package measure

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

// text is a measurement of a small model on a device whose units take scale ms
// a sample.
func text(rank int, uuid string, scale float64) string {
	return fmt.Sprintf(`{"rank":%d,"device":{"name":"Tesla T4","uuid":%q,"capability":[7,5],"bf16":false,"total_bytes":16000,"usable_bytes":15000,"host_memory_bytes":7000},
"torch":"2.15.0","script":{"batch_per_rank":8,"data":"distributed-sampler","samples":123},
"model":{"name":"GPT","parameters":1100,"trainable_parameters":1100,"state_bytes_per_parameter":16,"optimizer":"AdamW","dtype":"float16"},
"units":[{"class":"Block","count":10,"parameters":100,"trainable_parameters":50},{"class":"GPT (root)","count":1,"parameters":100,"whole_batch":true}],
"reserved_bytes":500,"fixed_ms":%[3]g,"ragged_factor":0.97,"microbatch_overhead_ms":{"forward":-0.01,"backward":0.2},
"costs":{"Block":{"forward_ms":[[1,%[3]g],[2,%[4]g]],"backward_ms":[[2,%[4]g],[1,%[3]g]],"memory_bytes":[[1,100],[2,150]],"least_memory_bytes":130,"kept_bytes_per_sample":{"keep":10,"recompute":2,"offload":0},"offload_ms_per_sample":0.25},
 "GPT (root)":{"forward_ms":[[1,1]],"backward_ms":[[1,2]],"memory_bytes":[[1,30]]}},
"collectives":{"Block":{"all_gather_ms":%[3]g,"reduce_scatter_ms":1},"GPT (root)":{"all_gather_ms":0.1,"reduce_scatter_ms":0.2}},
"spread":{"Block":0.02},"unknown":1}`, rank, uuid, scale, 2*scale)
}

func parse(t *testing.T, s string) Measurement {
	t.Helper()
	m, err := Parse("rank.json", []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func cards(n int) []profiler.Device {
	var out []profiler.Device
	for i := range n {
		uuid := fmt.Sprintf("GPU-%d", i)
		out = append(out, profiler.Device{Kind: "cuda", UUID: uuid, GPUUUID: uuid, Name: "Tesla T4", Index: i, Node: "n", MemoryBytes: 16000, FreeMemoryBytes: 14000, UsableMemoryBytes: 14000})
	}
	return out
}

func TestMerge(t *testing.T) {
	devices := cards(2)
	devices[1] = profiler.Device{Kind: "cuda", UUID: "virtual-b", GPUUUID: "GPU-1", Name: "b", Virtual: true, MemoryBytes: profiler.Unknown, UsableMemoryBytes: profiler.Unknown}
	run := Run{Fingerprint: "sha256:ab", Devices: devices, Driver: "580", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	got, err := Merge(run, []Measurement{parse(t, text(1, "1", 3)), parse(t, text(0, "GPU-0", 2))})
	if err != nil {
		t.Fatal(err)
	}
	p := got.Profile
	if p.Devices[0].Rank != 0 || p.Devices[0].UsableMemoryBytes != 14000 || p.Devices[0].Node != "n" || *p.Devices[0].Capability != (profiler.Capability{7, 5}) || *p.Devices[0].BF16 {
		t.Errorf("the run's devices decide: %+v", p.Devices[0])
	}
	if d := p.Devices[1]; d.Name != "b" || d.UUID != "virtual-b" || d.MemoryBytes != 16000 || d.UsableMemoryBytes != 15000 || d.ReservedBytes != 500 || d.HostMemoryBytes != 7000 {
		t.Errorf("the worker's numbers stand in for unknown ones: %+v", d)
	}
	block := p.Devices[1].Costs["Block"]
	if block.BackwardMs.Points[0] != [2]float64{1, 3} || block.ForwardMs.At(10) != 30 || block.MemoryBytes.At(1) != 130 || block.MemoryBytes.At(3) != 200 || block.KeptBytesPerSample["keep"] != 10 || block.OffloadMsPerSample != 0.25 {
		t.Errorf("got %+v", block)
	}
	if c := p.Collectives["Block"]; c.AllGatherMs != 3 || c.ReduceScatterMs != 1 {
		t.Errorf("collectives are the largest of any rank: %+v", c)
	}
	if p.RaggedFactor != 1 || p.FixedMs != 3 || p.MicrobatchOverheadMs.Forward != 0 || p.MicrobatchOverheadMs.Backward != 0.2 {
		t.Errorf("got %v %v %+v", p.RaggedFactor, p.FixedMs, p.MicrobatchOverheadMs)
	}
	if p.Script.BatchPerRank != 8 || p.Measured.Torch != "2.15.0" || p.Measured.Time != "2026-01-02T03:04:05Z" || p.Measured.Spread["Block"] != 0.02 || p.Model.Optimizer != "AdamW" {
		t.Errorf("got %+v %+v", p.Script, p.Measured)
	}
	if len(p.Model.Units) != 2 || p.Model.Units[0].Trainable() != 50 || !p.Model.Units[1].WholeBatch || len(got.Notes) != 0 {
		t.Errorf("got %+v, notes %v", p.Model, got.Notes)
	}
	path := filepath.Join(t.TempDir(), "p.json")
	if err := profiler.WriteProfile(path, p); err != nil {
		t.Fatal(err)
	}
	if _, err := profiler.ReadProfile(path); err != nil {
		t.Error(err)
	}
}

func TestMergeRefuses(t *testing.T) {
	good := func(rank int) string { return text(rank, "", 2) }
	cases := map[string]struct {
		texts []string
		want  []string
	}{
		"a rank is missing":   {[]string{good(0)}, []string{"rank 1: measured nothing (GPU 1 Tesla T4)"}},
		"a rank twice":        {[]string{good(0), good(1), good(1)}, []string{"both of rank 1"}},
		"a rank too many":     {[]string{good(0), good(1), good(2)}, []string{"rank 2: was measured (rank.json), but the run has 2 devices"}},
		"another device":      {[]string{good(0), text(1, "GPU-9", 2)}, []string{"rank 1: measured GPU-9, but its device is GPU-1"}},
		"another model":       {[]string{good(0), strings.Replace(good(1), `"parameters":1100`, `"parameters":1200`, 1)}, []string{"rank 1.model.parameters: is 1200, but 1100 on rank 0"}},
		"another torch":       {[]string{good(0), strings.Replace(good(1), "2.15.0", "2.8.0", 1)}, []string{"rank 1.torch: is 2.8.0, but 2.15.0 on rank 0"}},
		"another unit":        {[]string{good(0), strings.Replace(good(1), `"count":10`, `"count":9`, 1)}, []string{"units[0].count: is 9, but 10 on rank 0"}},
		"no points":           {[]string{good(0), strings.Replace(good(1), `[[1,30]]`, `[]`, 1)}, []string{"rank 1.costs.GPT (root).memory_bytes: has no measured points"}},
		"two values for one":  {[]string{good(0), strings.Replace(good(1), `[[1,100],[2,150]]`, `[[2,100],[2,150]]`, 1)}, []string{"two values for microbatch 2"}},
		"negative time":       {[]string{good(0), strings.Replace(good(1), `"forward_ms":[[1,1]]`, `"forward_ms":[[1,-1]]`, 1)}, []string{"has -1 for microbatch 1"}},
		"everything together": {[]string{good(0), strings.NewReplacer("2.15.0", "2.8.0", `"count":10`, `"count":9`).Replace(good(1))}, []string{"2 problems"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var all []Measurement
			for _, s := range c.texts {
				all = append(all, parse(t, s))
			}
			_, err := Merge(Run{Devices: cards(2)}, all)
			if !errors.Is(err, profiler.ErrInvalid) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("message lacks %q: %v", want, err)
				}
			}
		})
	}
	if _, err := Merge(Run{}, nil); !errors.Is(err, profiler.ErrInvalid) {
		t.Errorf("no devices: %v", err)
	}
}

func TestTwinsAreCompared(t *testing.T) {
	cases := map[string]struct {
		scales []float64
		want   []string
	}{
		"alike":              {[]float64{2, 2.1, 1.95}, nil},
		"one slow of three":  {[]float64{2, 2, 3}, []string{"rank 2 (GPU 2 Tesla T4) takes 47 % longer than its like"}},
		"one fast of three":  {[]float64{1, 2, 2}, []string{"rank 0 (GPU 0 Tesla T4) takes 47 % less than its like"}},
		"two: the slow one":  {[]float64{2, 3}, []string{"rank 1 (GPU 1 Tesla T4) takes 47 % longer"}},
		"one has no like":    {[]float64{2}, nil},
		"two slow ones of 4": {[]float64{2, 2, 2, 2.5}, []string{"rank 3"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var all []Measurement
			for i, s := range c.scales {
				all = append(all, parse(t, text(i, "", s)))
			}
			got, err := Merge(Run{Devices: cards(len(all))}, all)
			if err != nil || len(got.Notes) != len(c.want) {
				t.Fatalf("got %q, %v", got.Notes, err)
			}
			for i, want := range c.want {
				if !strings.Contains(got.Notes[i], want) {
					t.Errorf("got %q, want %q", got.Notes[i], want)
				}
			}
		})
	}
	limited := cards(2)
	limited[1].SMPercent = 25
	got, err := Merge(Run{Devices: limited}, []Measurement{parse(t, text(0, "", 1)), parse(t, text(1, "", 4))})
	if err != nil || len(got.Notes) != 0 {
		t.Errorf("other limits, no twins: %q, %v", got.Notes, err)
	}
	got, err = Merge(Run{Devices: cards(1)}, []Measurement{parse(t, strings.Replace(text(0, "", 1), "0.02", "0.2", 1))})
	if err != nil || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "repeated measurements of Block differ by up to 20 % on rank 0 (") {
		t.Errorf("got %q, %v", got.Notes, err)
	}
}

func TestFitCost(t *testing.T) {
	cases := map[string]struct {
		points           [][2]float64
		slope, intercept float64
	}{
		"one point: through the origin":       {[][2]float64{{2, 6}}, 3, 0},
		"two points":                          {[][2]float64{{1, 5}, {2, 7}}, 2, 3},
		"last four only":                      {[][2]float64{{1, 90}, {2, 12}, {3, 13}, {4, 14}, {5, 15}}, 1, 10},
		"falling is flat at the highest":      {[][2]float64{{1, 9}, {2, 8}, {3, 7}}, 0, 9},
		"never starts below the last point":   {[][2]float64{{1, 1}, {2, 2}, {3, 3}, {4, 8}}, 2.2, -0.8},
		"a low last point leaves the line up": {[][2]float64{{1, 10}, {2, 20}, {3, 30}, {4, 36}}, 8.8, 2},
		"unsorted":                            {[][2]float64{{2, 7}, {1, 5}}, 2, 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := FitCost(c.points)
			if err != nil || math.Abs(got.Tail.Slope-c.slope) > 1e-9 || math.Abs(got.Tail.Intercept-c.intercept) > 1e-9 {
				t.Errorf("got %+v, %v; want %v, %v", got.Tail, err, c.slope, c.intercept)
			}
			last := got.Points[len(got.Points)-1]
			if got.At(last[0]+1) < last[1]-1e-9 {
				t.Errorf("the cost falls beyond the last point: %v after %v", got.At(last[0]+1), last[1])
			}
		})
	}
}

func TestReadMeasurement(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rank-0.json")
	if err := os.WriteFile(path, []byte(text(0, "GPU-0", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := ReadAll([]string{path})
	if err != nil || len(all) != 1 || all[0].Source != path {
		t.Errorf("got %+v, %v", all, err)
	}
	if _, err := ReadAll([]string{path, filepath.Join(dir, "rank-1.json")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	cases := map[string]struct{ data, want string }{
		"truncated":       {text(0, "", 1)[:300], "the file is truncated"},
		"no unit":         {strings.Replace(text(0, "", 1), `"units":[`, `"units":[],"were":[`, 1), "units: is empty"},
		"unit unmeasured": {strings.Replace(text(0, "", 1), `"GPT (root)":{"forward`, `"Other":{"forward`, 1), "costs.GPT (root): is missing"},
		"no device":       {strings.Replace(text(0, "", 1), `"device":`, `"devise":`, 1), "device: is missing"},
		"points":          {strings.Replace(text(0, "", 1), `[[1,30]]`, `30`, 1), "costs.GPT (root).memory_bytes: must be a list, is 30"},
		"half a point":    {strings.Replace(text(0, "", 1), `[[1,30]]`, `[[1]]`, 1), "costs.GPT (root).memory_bytes[0]: must be a pair [microbatch, value]"},
		"negative rank":   {strings.Replace(text(0, "", 1), `"rank":0`, `"rank":-1`, 1), "rank: is -1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse("m.json", []byte(c.data)); !errors.Is(err, profiler.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
