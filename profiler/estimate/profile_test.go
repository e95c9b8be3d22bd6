package estimate

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

func cluster(t *testing.T, text string) Cluster {
	t.Helper()
	c, err := ParseCluster("test", []byte(text), []string{"p100"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// A model and two H100 by hand.
func TestFromModelByHand(t *testing.T) {
	m, err := ParseModel("test", []byte("name: m\nsequence: 100\nlayers: 3\nhidden: 1000\nheads: 10\nfeed_forward: 4000\nvocabulary: 50000\ndtype: bfloat16\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, notes := FromModel(cluster(t, "nodes: [ { inside_gb_per_s: 100, gpus: [ { gpu: H100, count: 2 } ] } ]"), m)
	if err := p.Validate(); err != nil || len(notes) != 0 {
		t.Fatal(err, notes)
	}
	block := p.Devices[0].Costs["block"]
	parameters := 12e6 + 9*1000 + 4000 // 4h² + 2h·4h, biases and norms
	near(t, "parameters", float64(p.Model.Units[0].Parameters), parameters)
	operations := 2*parameters*100 + 4*100*100*1000
	near(t, "a long forward", block.ForwardMs.At(1000), 0.2+1000*operations/(989e9*0.4))
	near(t, "a long backward", block.BackwardMs.At(1000), 0.4+2000*operations/(989e9*0.4))
	near(t, "a short forward", block.ForwardMs.At(1), 0.2+max(operations/(989e9*0.4), 2*parameters/3350e6))
	kept := 34*100*1000.0 + 5*10*100*100
	near(t, "kept", block.KeptBytesPerSample["keep"], kept)
	near(t, "kept inputs", block.KeptBytesPerSample["recompute"], 2*100*1000)
	near(t, "memory", block.MemoryBytes.At(4), parameters*8+(2*50000*1000+2000)*2+8*kept)
	near(t, "gather", p.Collectives["block"].AllGatherMs, 2*parameters/2/100e6+0.005)
	near(t, "reduce", p.Collectives["block"].ReduceScatterMs, 4*parameters/2/100e6+0.005)
	near(t, "state of the model", float64(p.Model.Parameters), 3*parameters+2*50000*1000+2000)
}

func TestTheSlowestLinkSetsThePace(t *testing.T) {
	c := cluster(t, "between_gbit_per_s: 8\nnodes:\n  - { count: 2, inside_gb_per_s: 100, gpus: [ { gpu: T4, count: 2 } ] }\n")
	near(t, "gather", c.gatherMs(4e6), 4e6*3/4/1e6+2*0.005+2*0.015) // 8 Gbit/s are 10^6 bytes per ms
	if l := c.Links(); len(l.Inside) != 2 || l.NodeOf[1] != 0 || l.NodeOf[2] != 1 {
		t.Errorf("%+v", l)
	}
	alone := cluster(t, "nodes: [ { gpus: [ { gpu: T4 } ] } ]")
	near(t, "gather of one", alone.gatherMs(4e6), 0)
}

func TestATypeThatACardLacks(t *testing.T) {
	m, err := ParseModel("test", []byte("name: m\nsequence: 8\nlayers: 2\nhidden: 16\nheads: 4\nfeed_forward: 64\ndtype: bfloat16\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, notes := FromModel(cluster(t, "nodes: [ { inside_gb_per_s: 9, gpus: [ { gpu: T4 }, { gpu: H100 } ] } ]"), m)
	if p.Model.DType != "float16" || len(notes) != 1 || !strings.Contains(notes[0], "T4") {
		t.Errorf("%s, %v", p.Model.DType, notes)
	}
}

// What was measured is taken as it is; what was not is scaled from the measured
// card that is closest in age.
func TestFromProfile(t *testing.T) {
	measured, err := profiler.ReadProfile(filepath.Join(casesDir, "paper-gpt_2.7b-float32.profile.json"))
	if err != nil {
		t.Fatal(err)
	}
	p, notes, err := FromProfile(cluster(t, "nodes: [ { inside_gb_per_s: 9, gpus: [ { gpu: L4, count: 2 }, { gpu: L40S }, { gpu: p100, memory: 5GiB }, { gpu: T4 } ] } ]"), measured)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	forward := func(i int) float64 { return p.Devices[i].Costs["layer"].ForwardMs.At(3) }
	near(t, "measured", forward(1), measured.Devices[0].Costs["layer"].ForwardMs.At(3))
	near(t, "usable as measured", float64(p.Devices[0].UsableMemoryBytes), float64(measured.Devices[0].UsableMemoryBytes))
	near(t, "scaled by peaks", forward(2), forward(0)*30.3/91.6)
	near(t, "a limit on memory", float64(p.Devices[3].UsableMemoryBytes), 5<<30)
	// T4 (7.5) is closest to the A6000 (8.6), and both were measured
	near(t, "scaled by measurements", forward(4), measured.Devices[2].Costs["layer"].ForwardMs.At(3)*38.7*0.354/(8.1*0.411))
	if len(notes) != 2 || notes[0] != "L40S was not measured: l4's times, multiplied by 0.33" {
		t.Errorf("%q", notes)
	}
	if c := p.Collectives["layer"]; c.AllGatherMs != 0 {
		t.Errorf("the profile says that collectives cost nothing, and here it is %v", c.AllGatherMs)
	}
	for i := range measured.Devices {
		measured.Devices[i].Name = "unheard of"
	}
	if _, _, err := Like(measured, "L4"); err == nil || !strings.Contains(err.Error(), "nothing to scale from") {
		t.Errorf("got %v", err)
	}
	if _, _, err := Like(measured, "abacus"); err == nil || !strings.Contains(err.Error(), `no GPU "abacus"`) {
		t.Errorf("got %v", err)
	}
}

func TestRoofline(t *testing.T) {
	for name, c := range map[string]profiler.Cost{"compute": roofline(1, 0.5, 2), "both": roofline(1, 10, 3), "memory": roofline(1, 1000, 3), "no work": roofline(1, 7, 0)} {
		last := 0.0
		for s := 1; s <= 200; s++ {
			v := c.At(float64(s))
			if v < last {
				t.Errorf("%s: %d samples cost %v, and one less %v", name, s, v, last)
			}
			last = v
		}
	}
	near(t, "bound by memory", roofline(1, 10, 3).At(2), 11)
	near(t, "bound by compute", roofline(1, 10, 3).At(5), 16)
}
