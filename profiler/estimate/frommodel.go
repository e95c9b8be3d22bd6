package estimate

import (
	"fmt"
	"math"

	"github.com/cephalorun/cephalorun/profiler"
)

// Names of the two classes of units of a model file.
const (
	blockClass = "block"
	rootClass  = "root"
)

// Constants of the cost model; docs/simulate.md says where they come from.
const (
	launchForwardMs  = 0.2 // starting the kernels of one block
	launchBackwardMs = 0.4
	gradientWidth    = 4    // bytes of an accumulated gradient
	usablePart       = 0.95 // of a card's memory; the rest is lost to fragments
	reservedBytes    = 1 << 30
	raggedFactor     = 1.15 // unequal shares on the collectives (arXiv 2411.01075)
	optimizerTouches = 1.75 // bytes moved per byte of state in an optimizer step
	mostPoints       = 64
)

// FromModel is the profile of a model on a cluster, all of it estimated. The
// notes say what is not as the file asks.
func FromModel(c Cluster, m Model) (profiler.Profile, []string) {
	dtype, notes := commonDType(c, m.DType)
	m.DType = dtype
	p := profiler.Profile{
		Version: profiler.ProfileVersion,
		Model: profiler.Model{Name: m.Name, Parameters: m.Parameters(), StateBytesPerParameter: m.StateBytes, DType: string(dtype),
			Units: []profiler.Unit{
				{Class: blockClass, Count: m.Layers, Parameters: m.blockParameters()},
				{Class: rootClass, Count: 1, Parameters: m.rootParameters(), WholeBatch: true},
			}},
		Collectives:          map[string]profiler.Collective{},
		RaggedFactor:         raggedFactor,
		MicrobatchOverheadMs: profiler.Overhead{Forward: launchForwardMs / 4, Backward: launchBackwardMs / 4},
	}
	for _, u := range p.Model.Units {
		p.Collectives[u.Class] = profiler.Collective{
			AllGatherMs: c.gatherMs(float64(u.Parameters) * m.width()), ReduceScatterMs: c.gatherMs(float64(u.Parameters) * gradientWidth)}
	}
	places := c.places()
	for rank, at := range places {
		gpu, _ := Find(at.gpu) // the reader has looked
		d := device(rank, at, gpu)
		d.Costs = map[string]profiler.UnitCosts{blockClass: m.block(gpu), rootClass: m.root(gpu)}
		p.Devices = append(p.Devices, d)
		state := float64(p.Model.Parameters) * m.StateBytes / float64(len(places))
		p.FixedMs = max(p.FixedMs, state*optimizerTouches/(gpu.BandwidthGBs*1e6))
	}
	return p, notes
}

// device is a place without its costs.
func device(rank int, at place, gpu GPU) profiler.ProfileDevice {
	memory := gpu.MemoryMiB << 20
	usable := int64(float64(memory) * usablePart)
	if at.memoryBytes > 0 {
		usable = at.memoryBytes
	}
	capability := gpu.Capability
	return profiler.ProfileDevice{Rank: rank, Node: fmt.Sprintf("%s.%d", at.nodeName, at.node), Kind: profiler.KindCUDA, Name: at.gpu,
		Capability: &capability, MemoryBytes: memory, UsableMemoryBytes: usable, ReservedBytes: min(reservedBytes, usable)}
}

// block is what one block costs: the launch, and of operations and reading the
// weights whichever takes longer. Backward is twice the operations. Memory is
// the gathered unit, the next one and the root unit, which stays, the gradients,
// and the activations of a block with theirs.
func (m Model) block(g GPU) profiler.UnitCosts {
	weightsMs := float64(m.blockParameters()) * m.width() / (g.BandwidthGBs * 1e6)
	sampleMs := m.blockOperations() / (g.Reached(m.DType) * 1e9)
	fixed := float64(m.blockParameters())*(2*m.width()+gradientWidth) + float64(m.rootParameters())*m.width()
	return profiler.UnitCosts{
		ForwardMs:          roofline(launchForwardMs, weightsMs, sampleMs),
		BackwardMs:         roofline(launchBackwardMs, 2*weightsMs, 2*sampleMs),
		MemoryBytes:        profiler.Cost{Points: [][2]float64{}, Tail: profiler.Tail{Slope: 2 * m.keptBytes(), Intercept: fixed}},
		KeptBytesPerSample: map[string]float64{"keep": m.keptBytes(), "recompute": m.inputBytes(), "offload": 0},
	}
}

// root is what the rest costs. The head is run sample by sample, so that the
// logits (and their gradients, in float32) of one sample are there at a time.
func (m Model) root(g GPU) profiler.UnitCosts {
	weightsMs := float64(m.rootParameters()) * m.width() / (g.BandwidthGBs * 1e6)
	sampleMs := m.rootOperations() / (g.Reached(m.DType) * 1e9)
	logits := 2 * 4 * (float64(m.Sequence)*float64(m.Vocabulary) + float64(m.Classes))
	return profiler.UnitCosts{
		ForwardMs:          roofline(launchForwardMs, weightsMs, sampleMs),
		BackwardMs:         roofline(launchBackwardMs, 2*weightsMs, 2*sampleMs),
		MemoryBytes:        profiler.Cost{Points: [][2]float64{}, Tail: profiler.Tail{Intercept: float64(m.rootParameters())*(m.width()+gradientWidth) + logits}},
		KeptBytesPerSample: map[string]float64{},
	}
}

// roofline is launch + max(floor, m·slope): points until the slope takes over.
func roofline(launch, floor, slope float64) profiler.Cost {
	c := profiler.Cost{Points: [][2]float64{}, Tail: profiler.Tail{Slope: slope, Intercept: launch}}
	below := mostPoints
	if slope > 0 {
		below = int(min(mostPoints, math.Ceil(floor/slope)))
	}
	for s := 1; s <= below; s++ {
		c.Points = append(c.Points, [2]float64{float64(s), launch + max(floor, slope*float64(s))})
	}
	if below == mostPoints { // bound by memory throughout: never below the last point
		c.Tail.Intercept = max(launch, launch+floor-slope*mostPoints)
	}
	return c
}

// commonDType is the type that every GPU of the cluster has.
func commonDType(c Cluster, wanted profiler.DType) (profiler.DType, []string) {
	var list []profiler.Device
	seen := map[string]bool{}
	for _, at := range c.places() {
		if gpu, ok := Find(at.gpu); ok && !seen[gpu.Name] {
			seen[gpu.Name] = true
			list = append(list, profiler.Device{Kind: profiler.KindCUDA, Name: gpu.Name, Index: len(list), Capability: gpu.Capability})
		}
	}
	if len(list) == 0 {
		return wanted, nil
	}
	choice := profiler.CommonDType(list, wanted, false)
	return choice.DType, choice.Reasons
}
