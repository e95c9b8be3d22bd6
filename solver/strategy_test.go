package solver

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func byName(t *testing.T, list []Outcome, name string) Outcome {
	t.Helper()
	for _, o := range list {
		if o.Strategy == name {
			return o
		}
	}
	t.Fatalf("no outcome of %s", name)
	return Outcome{}
}

func batchesOfOutcome(o Outcome) []int {
	var out []int
	for _, r := range o.Ranks {
		out = append(out, r.Batch)
	}
	return out
}

// The two devices of docs/planner.md, by hand. cephalo 38; equal batches 54;
// by speed 4 and 2 in one round 38; equal batches with ragged state
// 2*(6+18) + 4.5 + 1.5 + 2 = 56.
func TestCompareByHand(t *testing.T) {
	p := twoDevices()
	p.MicrobatchOverheadMs = Overhead{0.5, 1}
	list, err := Compare(p)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{StrategyCephalo: 38, StrategyEven: 54, StrategyEvenOrdinary: 54, StrategyComputeBalance: 38, StrategyMemoryBalance: 56}
	for _, name := range sortedKeys(want) {
		if o := byName(t, list, name); math.Abs(o.IterationMs-want[name]) > 1e-9 {
			t.Errorf("%s takes %v ms, want %v (%s)", name, o.IterationMs, want[name], o.How)
		}
	}
	if got := batchesOfOutcome(byName(t, list, StrategyComputeBalance)); !slices.Equal(got, []int{4, 2}) {
		t.Errorf("by speed the batches are %v", got)
	}
	// fast computes 32 of 38 ms, slow as well
	if got, want := byName(t, list, StrategyCephalo).Utilisation(), 32.0/38; math.Abs(got-want) > 1e-9 {
		t.Errorf("utilisation %v, want %v", got, want)
	}
}

// fourUnits is a chain of four equal units on two devices, one twice as fast;
// a unit takes 1+2 ms (recomputation 1 more) per sample on the fast one.
func fourUnits() Problem {
	cost := func(f float64) map[string]ClassCost {
		return map[string]ClassCost{"block": {ForwardMs: Cost{Tail: Line{f, 0}}, BackwardMs: Cost{Tail: Line{2 * f, 0}}, MemoryBytes: Cost{Tail: Line{10, 100}}}}
	}
	return Problem{GlobalBatch: 8, Units: []UnitClass{{Class: "block", Count: 4, Parameters: 10, TrainableParameters: 10}},
		StateBytesPerParameter: 16, Devices: []Device{
			{Rank: 0, Name: "fast", UsableMemoryBytes: 10000, Costs: cost(1)},
			{Rank: 1, Name: "slow", UsableMemoryBytes: 10000, Costs: cost(2)}}}
}

// A unit takes 4 ms a sample on the fast device and 8 on the slow one.
func TestPipelinesByHand(t *testing.T) {
	p := fourUnits()
	list, err := Compare(p)
	if err != nil {
		t.Fatal(err)
	}
	// Stages of 3 and 1 units: 12 and 8 ms a sample; 20 + 7*12 = 104.
	// Stages of 2 and 2: 8 and 16; 24 + 7*16 = 136. So 104.
	// Two equal replicas: 4 samples of 32 ms each: 128.
	megatron := byName(t, list, StrategyMegatronHet)
	if megatron.IterationMs != 104 || !strings.Contains(megatron.How, "8 x 1 sample through 3 units on fast, 1 unit on slow") {
		t.Errorf("megatron-het: %v ms, %s", megatron.IterationMs, megatron.How)
	}
	// Unequal replicas: 6 and 2 samples: max(6*16, 2*32) = 96.
	flash := byName(t, list, StrategyFlashFlex)
	if flash.IterationMs != 96 || !slices.Equal(batchesOfOutcome(flash), []int{6, 2}) {
		t.Errorf("flashflex: %v ms, %v, %s", flash.IterationMs, batchesOfOutcome(flash), flash.How)
	}
	if o := byName(t, list, StrategyCephalo); o.IterationMs != 96 {
		t.Errorf("cephalo: %v ms", o.IterationMs) // so too, since the links are free
	}
}

// Where gradients and parameters must cross a slow link the pipeline wins, and
// the comparison says so.
func TestAPipelineWinsOnASlowLink(t *testing.T) {
	p := fourUnits()
	p.Links = &Links{NodeOf: []int{0, 1}, Inside: []float64{1, 1}, Between: 1} // a byte per ms
	p.Collectives = map[string]Collective{"block": {AllGatherMs: 20, ReduceScatterMs: 20}}
	list, err := Compare(p)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := byName(t, list, StrategyCephalo), byName(t, list, StrategyMegatronHet); a.IterationMs <= b.IterationMs {
		t.Errorf("cephalo %v ms, megatron-het %v ms", a.IterationMs, b.IterationMs)
	}
}

func TestPipelinesKeepToMemory(t *testing.T) {
	p := fourUnits()
	p.Devices[0].UsableMemoryBytes = 2*160 + 10*1 // two units of state and one sample
	p.Links = &Links{NodeOf: []int{0, 1}, Inside: []float64{0, 0}}
	list, err := Compare(p)
	if err != nil {
		t.Fatal(err)
	}
	o := byName(t, list, StrategyMegatronHet)
	if !strings.Contains(o.How, "2 units on fast, 2 units on slow") || o.IterationMs != 136 { // 24 + 7*16
		t.Errorf("%v ms, %s", o.IterationMs, o.How)
	}
	for _, r := range o.Ranks {
		if r.MemoryBytes > r.UsableBytes {
			t.Errorf("rank %d uses %d of %d bytes", r.Rank, r.MemoryBytes, r.UsableBytes)
		}
	}
	for i := range p.Devices {
		p.Devices[i].UsableMemoryBytes = 150 // less than a unit's state
	}
	for _, s := range []Strategy{megatronHet{}, flashFlex{}} {
		_, err := s.Predict(p)
		var none *InfeasibleError
		if !errors.As(err, &none) {
			t.Errorf("%s: %v", s.Name(), err)
		}
	}
}

func TestOneUnitIsNoPipeline(t *testing.T) {
	p := loadProblem(t, loadCases(t)[0])
	var unfit *InapplicableError
	if _, err := (megatronHet{}).Predict(p); !errors.As(err, &unfit) || !strings.Contains(err.Error(), "one unit for the whole model") {
		t.Errorf("got %v", err)
	}
}

// cut divides small random chains no worse than trying every division does.
func TestCutEqualsEveryDivision(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for i := range 300 {
		p := fourUnits()
		p.Units[0].Count = 2 + r.IntN(6)
		p.GlobalBatch = 1 + r.IntN(8)
		p.Devices = nil
		for d := range 2 + r.IntN(2) {
			f := 0.5 + 3*r.Float64()
			p.Devices = append(p.Devices, Device{Rank: d, Name: fmt.Sprint(d), UsableMemoryBytes: int64(200 + r.IntN(1000)), Costs: map[string]ClassCost{
				"block": {ForwardMs: Cost{Tail: Line{f, 0.1}}, BackwardMs: Cost{Tail: Line{2 * f, 0.1}}, MemoryBytes: Cost{Tail: Line{10, 100}}}}})
		}
		m, err := newModel(p)
		if err != nil {
			t.Fatal(err)
		}
		var teams []team
		for d := range p.Devices {
			teams = append(teams, team{d})
		}
		c := m.newCutter(m.chain(), teams, p.GlobalBatch, 1, Recompute)
		want := everyDivision(c, 0, 0, nil)
		got, ok := c.cut(math.Inf(1))
		if ok != !math.IsInf(want, 1) {
			t.Fatalf("problem %d: found %v, want %v", i, ok, want)
		}
		// the bound on the slowest stage is searched in steps of a hundredth
		if ok && (got.ms(c.rounds) < want-1e-9 || got.ms(c.rounds) > want*1.02) {
			t.Errorf("problem %d: %v ms, best %v", i, got.ms(c.rounds), want)
		}
	}
}

func everyDivision(c *cutter, s, first int, done []stageCost) float64 {
	if s == len(c.teams) {
		if first < len(c.row) {
			return math.Inf(1)
		}
		p := pipeline{}
		for _, stage := range done {
			p.fillMs += stage.ms
			p.slowMs = max(p.slowMs, stage.ms)
		}
		return p.ms(c.rounds)
	}
	best := math.Inf(1)
	for end := first + 1; end <= len(c.row); end++ {
		if stage, fits := c.stage(s, first, end); fits {
			best = min(best, everyDivision(c, s+1, end, append(slices.Clone(done), stage)))
		}
	}
	return best
}

// Nothing that shares out whole batches or equal state beats the planner under
// layered accumulation.
func TestStrategiesOnPlannerCases(t *testing.T) {
	for _, c := range loadCases(t) {
		list, err := Compare(loadProblem(t, c))
		if err != nil {
			t.Fatal(err)
		}
		ours := byName(t, list, StrategyCephalo).IterationMs
		for _, name := range []string{StrategyEven, StrategyMemoryBalance} {
			if o := byName(t, list, name); o.Fits() && o.IterationMs < ours*(1-1e-9) {
				t.Errorf("%s: %s takes %v ms, the planner's plan %v", c.Profile, name, o.IterationMs, ours)
			}
		}
	}
}

// Random problems: no strategy exceeds a device's memory, loses samples, or
// fails in another way than by saying so.
func TestStrategiesKeepTheLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 3))
	for i := range 400 {
		p := randomProblem(r)
		list, err := Compare(p)
		if err != nil {
			t.Fatalf("problem %d: %v", i, err)
		}
		for _, o := range list {
			if err := checkOutcome(p, o); err != nil {
				t.Errorf("problem %d: %s: %v", i, o.Strategy, err)
			}
		}
	}
}

// checkOutcome holds an outcome to the rules that all strategies keep.
func checkOutcome(p Problem, o Outcome) error {
	if !o.Fits() {
		if o.How == "" {
			return errors.New("it does not say why it cannot run")
		}
		return nil
	}
	sum := 0
	for _, rank := range o.Ranks {
		sum += rank.Batch
		if rank.MemoryBytes > rank.UsableBytes {
			return fmt.Errorf("rank %d uses %d of %d bytes", rank.Rank, rank.MemoryBytes, rank.UsableBytes)
		}
	}
	sharded := o.Strategy != StrategyMegatronHet && o.Strategy != StrategyFlashFlex
	if sharded && sum != p.GlobalBatch {
		return fmt.Errorf("batches sum to %d, want %d", sum, p.GlobalBatch)
	}
	if u := o.Utilisation(); u < 0 || u > 1 || math.IsNaN(u) || math.IsInf(o.IterationMs, 0) {
		return fmt.Errorf("utilisation %v of %v ms", u, o.IterationMs)
	}
	return nil
}

// Two large and two small cards, three samples against two in the same time:
// the plan is at least 20 % faster than equal batches.
func TestUserCase2UnequalPairs(t *testing.T) {
	p := fourUnits()
	p.GlobalBatch = 800
	pair := p.Devices
	cost := func(f float64) map[string]ClassCost {
		return map[string]ClassCost{"block": {ForwardMs: Cost{Tail: Line{f, 0}}, BackwardMs: Cost{Tail: Line{2 * f, 0}}, MemoryBytes: Cost{Tail: Line{1, 100}}}}
	}
	pair[0].Costs, pair[1].Costs = cost(1), cost(1.5)
	p.Devices = []Device{pair[0], pair[0], pair[1], pair[1]}
	for i := range p.Devices {
		p.Devices[i].Rank = i
	}
	list, err := Compare(p)
	if err != nil {
		t.Fatal(err)
	}
	ours, equal := byName(t, list, StrategyCephalo), byName(t, list, StrategyEven)
	if ours.SamplesPerSecond < 1.2*equal.SamplesPerSecond || !slices.Equal(batchesOfOutcome(ours), []int{240, 240, 160, 160}) {
		t.Errorf("%v samples/s with %v, equal batches %v", ours.SamplesPerSecond, batchesOfOutcome(ours), equal.SamplesPerSecond)
	}
}
