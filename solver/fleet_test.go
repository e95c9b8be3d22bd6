package solver

import (
	"fmt"
	"math/rand/v2"
)

// fleet describes a large problem that looks like a cluster and a model.
type fleet struct {
	devices, kinds, batch int
	classes               int     // 1: blocks; 2: and a root unit; 3: and a second kind of block
	memory                float64 // usable memory over what the state needs
	policies              []Policy
	seed                  uint64
}

func (f fleet) String() string {
	return fmt.Sprintf("%d-devices-%d-kinds-batch-%d-classes-%d-memory-%g-policies-%d", f.devices, f.kinds, f.batch, f.classes, f.memory, len(f.policies))
}

// problem draws measured-looking costs: a line with 3 % of noise on up to 32
// points, backward about twice the forward, memory linear.
func (f fleet) problem() Problem {
	r := rand.New(rand.NewPCG(f.seed, 42))
	p := Problem{Profile: "sha256:fleet", GlobalBatch: f.batch, RaggedFactor: 1.1, StateBytesPerParameter: 16, FixedMs: 20,
		MicrobatchOverheadMs: Overhead{0.05, 0.1}, Policies: f.policies, Collectives: map[string]Collective{}}
	all := []UnitClass{
		{Class: "block", Count: 32, Parameters: 200e6},
		{Class: "root", Count: 1, Parameters: 250e6, WholeBatch: true},
		{Class: "expert", Count: 8, Parameters: 400e6},
	}[:f.classes]
	for _, u := range all {
		u.TrainableParameters = u.Parameters
		p.Units = append(p.Units, u)
		p.Collectives[u.Class] = Collective{float64(u.Parameters) / 1e8, float64(u.Parameters) / 1e8}
	}
	state := p.allStateBytes()
	mean := state / float64(f.devices)
	var kinds []Device
	for k := range f.kinds {
		speed := 1 + 4*float64(k)/float64(f.kinds) + r.Float64()*0.2
		d := Device{Name: fmt.Sprintf("kind%d", k), ReservedBytes: 1 << 30, Costs: map[string]ClassCost{}}
		d.UsableMemoryBytes = d.ReservedBytes + int64(mean*f.memory*(0.5+r.Float64()))
		for _, u := range p.Units {
			d.Costs[u.Class] = f.cost(r, speed*(0.8+0.4*r.Float64())*float64(u.Parameters)/2e8, mean*0.3)
		}
		kinds = append(kinds, d)
	}
	for i := range f.devices {
		d := kinds[i*f.kinds/f.devices]
		d.Rank, d.UUID = i, fmt.Sprintf("GPU-%04d", i)
		p.Devices = append(p.Devices, d)
	}
	return p
}

func (f fleet) cost(r *rand.Rand, speed, bytes float64) ClassCost {
	curve := func(slope, fixed, noise float64) Cost {
		c := Cost{Tail: Line{slope, fixed}}
		for s := 1; s <= 32; s++ {
			c.Points = append(c.Points, [2]float64{float64(s), (slope*float64(s) + fixed) * (1 + noise*(r.Float64()-0.5))})
		}
		return c
	}
	ratio := 1.7 + 0.6*r.Float64()
	per := bytes / 20
	return ClassCost{
		ForwardMs: curve(speed, 0.3, 0.06), BackwardMs: curve(speed*ratio, 0.5, 0.06), MemoryBytes: curve(per, bytes/2, 0),
		KeptBytesPerSample: map[Policy]float64{Keep: per / 8, Recompute: per / 80},
		OffloadMsPerSample: 0.1,
	}
}
