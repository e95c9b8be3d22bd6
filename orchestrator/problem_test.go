package orchestrator

import (
	"slices"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// linear is a cost of slope ms or bytes a sample.
func linear(slope float64) profiler.Cost {
	return profiler.Cost{Points: [][2]float64{{1, slope}}, Tail: profiler.Tail{Slope: slope}}
}

// twoDevices is a profile of two devices whose time for a sample is given.
func twoDevices(data string, times ...float64) profiler.Profile {
	p := profiler.Profile{RaggedFactor: 1, Script: &profiler.Script{BatchPerRank: 4, Data: data, Samples: 100}}
	p.Model.StateBytesPerParameter = 16
	p.Model.Units = []profiler.Unit{{Class: "Block", Count: 4, Parameters: 1000}}
	p.Collectives = map[string]profiler.Collective{"Block": {AllGatherMs: 0.1, ReduceScatterMs: 0.1}}
	for rank, ms := range times {
		p.Devices = append(p.Devices, profiler.ProfileDevice{Rank: rank, Name: "d", UsableMemoryBytes: 1 << 30,
			Costs: map[string]profiler.UnitCosts{"Block": {ForwardMs: linear(ms), BackwardMs: linear(2 * ms), MemoryBytes: linear(1000)}}})
	}
	return p
}

func TestBatchesThatCannotBeDealtStayAsTheyAre(t *testing.T) {
	for data, want := range map[string][]int{"fixed": {4, 4}, "distributed-sampler": {6, 2}} {
		problem, err := ProblemOf(twoDevices(data, 1, 3), 8)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Solve(problem, Best)
		if err != nil {
			t.Fatal(err)
		}
		if got := batchesOf(plan); !slices.Equal(got, want) {
			t.Errorf("%s: batches %v, want %v", data, got, want)
		}
	}
}

func TestADeviceWithoutSamplesCostsWhatOneCosts(t *testing.T) {
	p := twoDevices("distributed-sampler", 1, 12)
	for i := range p.Devices {
		c := p.Devices[i].Costs["Block"]
		c.KeptBytesPerSample = map[string]float64{"keep": 70, "recompute": 10}
		p.Devices[i].Costs["Block"] = c
	}
	problem, err := ProblemOf(p, 8)
	if err != nil {
		t.Fatal(err)
	}
	none, one := ofSecond(t, problem, 8, 0), ofSecond(t, problem, 7, 1)
	if none != one || one.ForwardMs != 4*12 || one.BackwardMs != 4*24 {
		t.Errorf("without samples: %+v, with one: %+v", none, one)
	}
	plan, err := Solve(problem, Best)
	if err != nil {
		t.Fatal(err)
	}
	if got := batchesOf(plan); !slices.Equal(got, []int{7, 1}) {
		t.Errorf("batches %v: a sample costs the slow device nothing more", got)
	}
	p.Script = nil
	if problem, err = ProblemOf(p, 8); err != nil {
		t.Fatal(err)
	}
	if plan, err = Solve(problem, Best); err != nil {
		t.Fatal(err)
	}
	if got := batchesOf(plan); !slices.Equal(got, []int{8, 0}) {
		t.Errorf("batches %v: no script is known that would be shown a sample", got)
	}
}

// ofSecond is what the second device takes with these batches.
func ofSecond(t *testing.T, p solver.Problem, batches ...int) solver.RankPrediction {
	t.Helper()
	p.FixedBatches, p.Policies = batches, []solver.Policy{solver.Keep}
	plan, err := Solve(p, Best)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Ranks[1].Predicted
}

func batchesOf(plan solver.Plan) []int {
	var batches []int
	for _, r := range plan.Ranks {
		batches = append(batches, r.Batch)
	}
	return batches
}

func TestOffloadingIsAllowedWhereItWasMeasuredOnEveryDevice(t *testing.T) {
	p := twoDevices("distributed-sampler", 1, 1)
	for i := range p.Devices {
		c := p.Devices[i].Costs["Block"]
		c.KeptBytesPerSample, c.OffloadMsPerSample = map[string]float64{"offload": 0}, 0.25
		p.Devices[i].Costs["Block"] = c
		p.Devices[i].HostMemoryBytes = 5000
	}
	problem, err := ProblemOf(p, 8)
	if err != nil {
		t.Fatal(err)
	}
	if want := []solver.Policy{solver.Recompute, solver.Offload}; !slices.Equal(problem.Policies, want) {
		t.Errorf("policies %v, want %v", problem.Policies, want)
	}
	if d := problem.Devices[1]; d.HostMemoryBytes != 5000 || d.Costs["Block"].OffloadMsPerSample != 0.25 {
		t.Errorf("got %+v", d)
	}
	delete(p.Devices[1].Costs["Block"].KeptBytesPerSample, "offload")
	problem, err = ProblemOf(p, 8)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(problem.Policies, solver.Offload) {
		t.Errorf("policies %v: one device was not measured", problem.Policies)
	}
}

// What no tensor can have limits the optimizer's step on every device; a worker on a
// processor reports it too.
func TestMemoryOutsideOfTensors(t *testing.T) {
	state := int64(16 * 4000)
	peaks := map[profiler.Kind]int64{}
	for _, kind := range []profiler.Kind{profiler.KindCUDA, profiler.KindCPU} {
		p := twoDevices("distributed-sampler", 1, 1)
		p.Model.StepBytesPerParameter = 16
		for i := range p.Devices {
			d := &p.Devices[i]
			d.Kind, d.ReservedBytes, d.OutsideBytes, d.UsableMemoryBytes = kind, 50_000, 50_000, 50_000+state
			c := d.Costs["Block"]
			first := linear(1000)
			c.FirstMemoryBytes = &first
			d.Costs["Block"] = c
		}
		problem, err := ProblemOf(p, 2)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Solve(problem, Best)
		if err != nil {
			t.Fatal(err)
		}
		peaks[kind] = plan.Ranks[0].Predicted.PeakMemoryBytes
		for i := range problem.Devices {
			problem.Devices[i].UsableMemoryBytes--
		}
		if _, err := Solve(problem, Best); err == nil {
			t.Errorf("%s: a plan whose optimizer's step lacks a byte", kind)
		}
	}
	if peaks[profiler.KindCPU]-peaks[profiler.KindCUDA] != 50_000 {
		t.Errorf("peaks %v: a worker on a processor counts its whole size", peaks)
	}
}
