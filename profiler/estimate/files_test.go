package estimate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

func TestExampleClusters(t *testing.T) {
	want := map[string][]string{
		"paper-a": {"L4", "L4", "A6000", "P40", "P40", "P40", "P100-12GB", "P100-12GB"},
		"paper-b": slices.Concat(slices.Repeat([]string{"A10G"}, 16), slices.Repeat([]string{"V100"}, 16), slices.Repeat([]string{"T4"}, 32)),
	}
	for _, path := range examples(t, "clusters") {
		c, err := ReadCluster(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range c.places() {
			got = append(got, p.gpu)
		}
		if w, ok := want[c.Name]; ok && !slices.Equal(got, w) {
			t.Errorf("%s holds %v", path, got)
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// The parameters are those of the prototype's models, where the shape is known.
func TestExampleModels(t *testing.T) {
	want := map[string]float64{"bert-large": 0.335e9, "bert-xlarge": 1.16e9, "gpt-1.3b": 1.32e9, "gpt-2.7b": 2.78e9, "gpt-6.7b": 6.87e9,
		"vit-g": 1.843e9, "vit-e": 3.806e9, "llama-tiny": 1.10e9, "llama-3b": 3.43e9, "llama-7b": 6.74e9}
	for _, path := range examples(t, "models") {
		m, err := ReadModel(path)
		if err != nil {
			t.Fatal(err)
		}
		got, w := float64(m.Parameters()), want[m.Name]
		if w == 0 || got < 0.99*w || got > 1.01*w {
			t.Errorf("%s has %.4g parameters, want %.4g", m.Name, got, w)
		}
		delete(want, m.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

const goodNode = "nodes:\n  - inside_gb_per_s: 10\n    gpus:\n      - { gpu: L4, count: 2 }\n"

func TestClusterFaults(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"empty":             {"", []string{"the file is empty: it needs a list called nodes"}},
		"only a comment":    {"# nothing\n", []string{"the file is empty"}},
		"a list":            {"- 1\n", []string{"must be a mapping"}},
		"not YAML":          {"nodes: [", []string{"is not YAML"}},
		"two documents":     {goodNode + "---\n" + goodNode, []string{"more than one YAML document"}},
		"no nodes":          {"name: x\n", []string{"nodes: is missing"}},
		"zero nodes":        {"nodes: []\n", []string{"nodes: is empty"}},
		"zero GPUs":         {"nodes:\n  - gpus: []\n", []string{"nodes[0].gpus: is empty"}},
		"nodes as text":     {"nodes: many\n", []string{"nodes: must be a list"}},
		"an unknown field":  {goodNode + "speed: 3\n", []string{"speed: is an unknown field"}},
		"an unknown GPU":    {"nodes:\n  - gpus: [ { gpu: Abacus } ]\n", []string{`nodes[0].gpus[0].gpu: "Abacus" is not known; known are P100-12GB`}},
		"no link inside":    {"nodes:\n  - gpus: [ { gpu: L4, count: 2 } ]\n", []string{"nodes[0].inside_gb_per_s: is missing: the node has 2 GPUs"}},
		"no link between":   {"nodes:\n  - { count: 2, gpus: [ { gpu: L4 } ] }\n", []string{"between_gbit_per_s: is missing: there are 2 nodes"}},
		"two names":         {"between_gbit_per_s: 9\nnodes:\n  - { name: a, gpus: [ { gpu: L4 } ] }\n  - { name: a, gpus: [ { gpu: L4 } ] }\n", []string{`nodes[1].name: "a" is also the name of nodes[0]`}},
		"too many":          {"between_gbit_per_s: 9\nnodes:\n  - { count: 4096, inside_gb_per_s: 1, gpus: [ { gpu: L4, count: 4096 } ] }\n", []string{"nodes: hold 16777216 GPUs, more than 4096"}},
		"a field twice":     {"name: a\nname: b\n" + goodNode, []string{"name: is given twice"}},
		"hardly any memory": {"nodes:\n  - gpus: [ { gpu: L4, memory: 3B } ]\n", []string{"nodes[0].gpus[0].memory: is 3 bytes"}},
		"everything at once": {"between_gbit_per_s: -1\nnodes:\n  - inside_gb_per_s: .nan\n    count: 0\n    gpus:\n      - { gpu: L4, count: -2, memory: lots }\n      - { count: 1e30, size: 3 }\n  - { gpus: [ 7 ] }\n", []string{
			"between_gbit_per_s: is \"-1\"", "nodes[0].inside_gb_per_s: is \".nan\"", "nodes[0].count: is \"0\"", "nodes[0].gpus[0].count: is \"-2\"",
			"nodes[0].gpus[0].memory", "nodes[0].gpus[1].gpu: is missing", "nodes[0].gpus[1].count: is \"1e30\"", "nodes[0].gpus[1].size: is an unknown field", "nodes[1].gpus[0]: must be a mapping"}},
		"absurd speed": {"between_gbit_per_s: 1e30\n" + goodNode, []string{"between_gbit_per_s: is \"1e30\", must be a number from 0.001 to 100000"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseCluster("cluster.yaml", []byte(c.text), nil)
			mustSay(t, err, c.want)
		})
	}
	if _, err := ParseCluster("x", []byte("nodes:\n  - gpus: [ { gpu: mine } ]\n"), []string{"Mine"}); err != nil {
		t.Errorf("a measured GPU is refused: %v", err)
	}
}

func TestModelFaults(t *testing.T) {
	good := "name: m\nsequence: 8\nlayers: 2\nhidden: 16\nheads: 4\nfeed_forward: 64\n"
	cases := map[string]struct {
		text string
		want []string
	}{
		"empty":            {"", []string{"the file is empty: it needs name, sequence"}},
		"all missing":      {"tied: true\n", []string{"name: is missing", "sequence: is missing", "layers: is missing", "hidden: is missing", "heads: is missing", "feed_forward: is missing"}},
		"unknown field":    {good + "colour: red\n", []string{"colour: is an unknown field"}},
		"heads":            {strings.Replace(good, "heads: 4", "heads: 5", 1), []string{"heads: is 5, which does not divide hidden 16"}},
		"kv heads":         {good + "kv_heads: 3\n", []string{"kv_heads: is 3, which does not divide heads 4"}},
		"dtype":            {good + "dtype: int8\n", []string{`dtype: is "int8", must be float32, float16 or bfloat16`}},
		"truth":            {good + "gated: perhaps\n", []string{`gated: is "perhaps", must be true or false`}},
		"several, one run": {strings.Replace(good, "layers: 2", "layers: -2", 1) + "vocabulary: 1e30\nstate_bytes_per_parameter: .inf\n", []string{"layers: is \"-2\"", "vocabulary: is \"1e30\"", "state_bytes_per_parameter: is \".inf\""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseModel("model.yaml", []byte(c.text))
			mustSay(t, err, c.want)
		})
	}
	if _, err := ParseModel("x", []byte(good)); err != nil {
		t.Error(err)
	}
}

func mustSay(t *testing.T, err error, want []string) {
	t.Helper()
	if !errors.Is(err, profiler.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in %v", w, err)
		}
	}
}

// FuzzCluster: whatever is accepted makes a profile that is sound.
func FuzzCluster(f *testing.F) {
	for _, path := range examples(f, "clusters") {
		f.Add(content(f, path))
	}
	f.Add([]byte(goodNode))
	f.Add([]byte("nodes: &a\n  - gpus: *a\n"))
	f.Add([]byte("nodes:\n  - { count: 9, host_memory: 1B, gpus: [ { gpu: T4, memory: 2MiB } ] }\nbetween_gbit_per_s: 1e-3\n"))
	model, err := ReadModel("../../examples/models/bert-large.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCluster("cluster.yaml", data, nil)
		if err != nil {
			if !errors.Is(err, profiler.ErrInvalid) {
				t.Fatalf("an error of another class: %v", err)
			}
			return
		}
		p, _ := FromModel(c, model)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzModel: whatever is accepted makes a profile that is sound.
func FuzzModel(f *testing.F) {
	for _, path := range examples(f, "models") {
		f.Add(content(f, path))
	}
	f.Add([]byte("name: m\nsequence: 1\nlayers: 1\nhidden: 1\nheads: 1\nfeed_forward: 1\n"))
	f.Add([]byte("name: m\nsequence: 1048576\nlayers: 1024\nhidden: 32768\nheads: 1\nfeed_forward: 262144\nvocabulary: 2097152\n"))
	cluster, err := ReadCluster("../../examples/clusters/paper-a.yaml", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseModel("model.yaml", data)
		if err != nil {
			if !errors.Is(err, profiler.ErrInvalid) {
				t.Fatalf("an error of another class: %v", err)
			}
			return
		}
		p, _ := FromModel(cluster, m)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
