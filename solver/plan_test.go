package solver

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// samplePlan is a plan by hand.
func samplePlan() Plan {
	return Plan{
		Version: 1, Strategy: StrategyCephalo, Profile: "sha256:ab", GlobalBatch: 5, Shares: RaggedShares,
		Ranks: []RankPlan{
			{Rank: 0, Device: "GPU-0", Batch: 5, MicroBatches: []int{3, 2}, StatePPM: 1_000_000, Activations: Keep, Predicted: RankPrediction{1.5, 3, 900, 1000, 700}},
			{Rank: 1, Device: "GPU-1", Activations: Recompute, Predicted: RankPrediction{0, 0, 10, 1000, 0}},
		},
		Predicted:    PlanPrediction{4.5, 1111.111111, "compute: <0>"},
		Alternatives: []Alternative{{StrategyEven, 0, "does not fit"}},
	}
}

func TestPlanRoundTrip(t *testing.T) {
	first, err := samplePlan().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"micro_batches": []`, `"bottleneck": "compute: <0>"`} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("%s is not in\n%s", want, first)
		}
	}
	plan, err := ParsePlan(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := plan.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Errorf("got\n%s\nwant\n%s", second, first)
	}
}

func TestParsePlanFaults(t *testing.T) {
	set := func(path string, v any) func(map[string]any) {
		return func(doc map[string]any) {
			keys := strings.Split(path, ".")
			at := doc
			for _, k := range keys[:len(keys)-1] {
				switch k {
				case "0", "1":
				case "ranks":
					at = doc["ranks"].([]any)[int(keys[1][0]-'0')].(map[string]any)
				default:
					at = at[k].(map[string]any)
				}
			}
			if v == nil {
				delete(at, keys[len(keys)-1])
				return
			}
			at[keys[len(keys)-1]] = v
		}
	}
	tests := map[string]struct {
		change func(map[string]any)
		want   []string
	}{
		"missing field":       {set("shares", nil), []string{"shares: missing"}},
		"unknown field":       {set("ranks.1.colour", "red"), []string{"ranks[1].colour: unknown field"}},
		"text for a number":   {set("ranks.0.batch", "5"), []string{`ranks[0].batch: want a whole number, got "5"`}},
		"fraction of samples": {set("global_batch", 4.5), []string{"global_batch: want a whole number, got 4.5"}},
		"list for an object":  {set("predicted", []any{}), []string{"predicted: want an object, got a list"}},
		"two faults at once":  {func(d map[string]any) { set("profile", 7)(d); set("ranks.0.device", nil)(d) }, []string{"profile: want text, got 7", "ranks[0].device: missing"}},
		"other version":       {set("version", 2), []string{"version: this is version 2, and only version 1 can be read"}},
		"wrong sum":           {set("ranks.1.batch", 1), []string{"ranks[1].micro_batches: sum to 0, want batch 1", "ranks: batches sum to 6, want global_batch 5"}},
		"wrong shares":        {set("ranks.1.state_ppm", 1), []string{"ranks: state_ppm sum to 1000001, want 1000000"}},
		"negative share":      {set("ranks.1.state_ppm", -1), []string{"ranks[1].state_ppm: want 0 to 1000000, got -1"}},
		"empty microbatch":    {set("ranks.0.micro_batches", []any{5, 0}), []string{"ranks[0].micro_batches[1]: want at least 1, got 0"}},
		"unknown policy":      {set("ranks.0.activations", "drop"), []string{`ranks[0].activations: want "keep", "recompute" or "offload", got "drop"`}},
		"out of memory":       {set("ranks.0.predicted.memory_bytes", 1001), []string{"ranks[0].predicted.memory_bytes: want 0 to usable_memory_bytes 1000, got 1001"}},
		"ranks out of order":  {set("ranks.0.rank", 3), []string{"ranks[0].rank: want 0, got 3"}},
		"negative time":       {set("ranks.0.predicted.forward_ms", -1), []string{"ranks[0].predicted.forward_ms: want a finite number of at least 0, got -1"}},
		"no ranks":            {set("ranks", []any{}), []string{"ranks: is empty"}},
	}
	good, err := samplePlan().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var doc map[string]any
			if err := json.Unmarshal(good, &doc); err != nil {
				t.Fatal(err)
			}
			tt.change(doc)
			data, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ParsePlan(data)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

func TestParsePlanNotADocument(t *testing.T) {
	good, err := samplePlan().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ data, want string }{
		"empty":     {"", "plan: is cut short after 0 bytes"},
		"truncated": {string(good[:40]), "plan: is cut short after 40 bytes"},
		"text":      {"hello", "plan: is not JSON"},
		"a list":    {"[]", "plan: the document: want an object, got a list"},
		"null":      {"null", "plan: the document: want an object, got null"},
		"two":       {string(good) + "{}", "plan: has more after the end"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ParsePlan([]byte(tt.data)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Of a field that is there twice nobody can tell which was meant.
func TestPlanWithAFieldTwice(t *testing.T) {
	plan, err := Solve(twoDevices())
	if err != nil {
		t.Fatal(err)
	}
	data, err := plan.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	twice := strings.Replace(strings.Replace(string(data), `"batch": 2`, `"batch": 2, "batch": 2`, 1), `"strategy"`, `"version": 1, "strategy"`, 1)
	_, err = ParsePlan([]byte(twice))
	for _, want := range []string{"version: is given twice", "ranks[1].batch: is given twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
