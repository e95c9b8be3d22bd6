package solver

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// randomProblem draws a small problem: 2 to 5 devices, 1 to 3 classes, up to
// 12 samples, memory from plenty to none.
func randomProblem(r *rand.Rand) Problem {
	p := Problem{
		GlobalBatch: 1 + r.IntN(12), RaggedFactor: []float64{1, 1, 1.15, 1.5}[r.IntN(4)],
		MicrobatchOverheadMs:   Overhead{float64(r.IntN(3)) * 0.2, float64(r.IntN(3)) * 0.5},
		StateBytesPerParameter: 16, FrozenBytesPerParameter: 2 + float64(r.IntN(3)),
		FixedMs: float64(r.IntN(2)) * 3, Collectives: map[string]Collective{},
	}
	devices := 2 + r.IntN(4)
	if devices > 3 {
		p.GlobalBatch = 1 + r.IntN(8)
	}
	p.Policies = [][]Policy{nil, {Keep}, {Keep, Recompute}, {Recompute, Offload}, {Keep, Recompute, Offload}}[r.IntN(5)]
	if devices > 4 && len(p.Policies) > 2 {
		p.Policies = p.Policies[:2]
	}
	classes := 1 + r.IntN(3)
	for i := range classes {
		u := UnitClass{Class: fmt.Sprintf("u%d", i), Count: 1 + r.IntN(4), Parameters: int64(1000 + r.IntN(9000)), WholeBatch: i > 0 && r.IntN(2) == 0}
		u.TrainableParameters = u.Parameters
		if i > 0 && r.IntN(3) == 0 {
			u.TrainableParameters = u.Parameters / 10
		}
		u.OverlapLoss = []float64{0, 0, 0, 0.3, 1}[u.Parameters%5]
		p.Units = append(p.Units, u)
		if r.IntN(2) == 0 {
			p.Collectives[u.Class] = Collective{r.Float64() * 10, r.Float64() * 10}
		}
	}
	for i := range p.Units {
		p.Units[i].ReceivedBytes = []int64{0, 0, 1, 4}[p.Units[i].Parameters/20%4] * p.Units[i].Parameters
	}
	p.StepBytesPerParameter = []float64{0, 0, 4, 24}[p.Units[0].Parameters/5%4]
	state := p.allStateBytes()
	tight := []float64{0.8, 1.3, 2, 4, 20}[r.IntN(5)]
	var kinds []Device
	for range 1 + r.IntN(devices) {
		d := Device{Name: fmt.Sprintf("k%d", len(kinds)), ReservedBytes: int64(r.IntN(3000)), Costs: map[string]ClassCost{}}
		d.OutsideBytes = d.ReservedBytes / 3
		d.UsableMemoryBytes = d.ReservedBytes + int64(state*tight*(0.2+r.Float64()*1.3)/float64(devices))
		if r.IntN(6) == 0 {
			d.HostMemoryBytes = int64(1 + r.IntN(20000))
		}
		for _, u := range p.Units {
			d.Costs[u.Class] = randomCost(r, state*0.3/float64(devices))
		}
		kinds = append(kinds, d)
	}
	for i := range devices {
		d := kinds[r.IntN(len(kinds))]
		d.Rank, d.UUID = i, fmt.Sprintf("GPU-%d", i)
		p.Devices = append(p.Devices, d)
	}
	if r.IntN(8) == 0 {
		p.FixedBatches = make([]int, devices)
		for range p.GlobalBatch {
			p.FixedBatches[r.IntN(devices)]++
		}
		return p
	}
	p.UseAll = r.IntN(10) == 0 && p.GlobalBatch >= devices
	return p
}

// allStateBytes is the state of all classes.
func (p Problem) allStateBytes() float64 {
	sum := 0.0
	for _, bytes := range p.stateBytes() {
		sum += bytes
	}
	return sum
}

func randomCost(r *rand.Rand, bytes float64) ClassCost {
	speed := 0.3 + r.Float64()*3
	wobble := []float64{0, 0, 0.5}[r.IntN(3)]
	curve := func(perSample, fixed float64, from int) Cost {
		c := Cost{Tail: Line{perSample, fixed}, Points: [][2]float64{}}
		for s := from; s <= r.IntN(10); s++ {
			c.Points = append(c.Points, [2]float64{float64(s), max(0, (perSample*float64(s)+fixed)*(1+wobble*(r.Float64()-0.5)))})
		}
		return c
	}
	if r.IntN(4) == 0 { // whole numbers make ties
		speed = 1 + float64(r.IntN(3))
	}
	c := ClassCost{
		ForwardMs:   curve(speed, float64(r.IntN(3))*0.5, 1),
		BackwardMs:  curve(2*speed, float64(r.IntN(3))*0.5, 1),
		MemoryBytes: curve(bytes*r.Float64(), bytes*r.Float64(), r.IntN(2)),
	}
	kept := bytes * r.Float64() * 0.2
	c.KeptBytesPerSample = map[Policy]float64{Keep: kept, Recompute: kept / 5}
	if r.IntN(2) == 0 {
		c.OffloadMsPerSample = speed * r.Float64() * 2
	}
	return c
}

// compare solves a problem and holds the answer against the oracle.
func compare(p Problem) error {
	split, most := oracleSplit(p), 0
	if split >= 0 {
		most = p.Units[split].Count - 1
	}
	even := math.Inf(1)
	for kept := 0; kept <= most; kept++ {
		even = oracle(p, 0, split, kept, even)
	}
	ragged := even // or less, if some classes are
	for kept := 0; kept <= most; kept++ {
		for set := 1; set < 1<<len(p.Units); set++ {
			ragged = oracle(p, set, split, kept, ragged)
		}
	}
	want := min(even, ragged)
	plan, err := Solve(p)
	var none *InfeasibleError
	switch {
	case errors.As(err, &none):
		if !math.IsInf(want, 1) {
			return fmt.Errorf("no plan found, and there is one of %v ms", want)
		}
		return nil
	case err != nil:
		return err
	}
	if got := plan.Predicted.IterationMs; math.Abs(got-want) > 1e-6*want+2e-6 {
		return fmt.Errorf("iteration %v ms, want %v (even %v, ragged %v)", got, want, even, ragged)
	}
	if even <= ragged && plan.Shares != EvenShares {
		return fmt.Errorf("shares are %s although even ones take %v ms and ragged ones %v", plan.Shares, even, ragged)
	}
	return checkPlan(p, plan)
}

// checkPlan holds a plan to the rules that every plan keeps.
func checkPlan(p Problem, plan Plan) error {
	if _, err := plan.Marshal(); err != nil {
		return err
	}
	predicted, err := Evaluate(p, plan.Allocation())
	if err != nil {
		return err
	}
	if math.Abs(predicted.IterationMs-plan.Predicted.IterationMs) > 1e-6 {
		return fmt.Errorf("the plan says %v ms, its evaluation %v", plan.Predicted.IterationMs, predicted.IterationMs)
	}
	return nil
}

func TestSolveEqualsOracle(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			for i := range 2500 {
				p := randomProblem(r)
				if err := compare(p); err != nil {
					t.Fatalf("problem %d: %v\n%+v", i, err, p)
				}
			}
		})
	}
}
