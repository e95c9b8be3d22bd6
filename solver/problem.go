package solver

// Policy says what a rank does with the activations of a unit between the
// forward and the backward pass.
type Policy string

// The activation policies, fastest first.
const (
	Keep      Policy = "keep"      // keep everything, backward runs no forward again
	Recompute Policy = "recompute" // keep the inputs, backward runs the forward again
	Offload   Policy = "offload"   // as Recompute, with the inputs in host memory
)

// index of the policy in arrays by policy.
func (p Policy) index() int {
	switch p {
	case Keep:
		return 0
	case Recompute:
		return 1
	}
	return 2
}

// Shares says how the training state is divided between the ranks.
type Shares string

// The two ways to divide the state.
const (
	EvenShares   Shares = "even"   // every rank owns 1/N
	RaggedShares Shares = "ragged" // every rank owns what its memory allows
)

// Problem is all that the planner knows. Durations are in milliseconds, sizes
// in bytes.
type Problem struct {
	// Profile is the fingerprint of the profile that the numbers come from; it
	// is copied into the plan.
	Profile string
	// GlobalBatch is the number of samples of one optimizer step.
	GlobalBatch int
	// Units are the kinds of sharded units of the model, at least one.
	Units []UnitClass
	// Devices are the ranks, in rank order: Devices[i].Rank == i.
	Devices []Device
	// Collectives is the time of the even collectives of ONE unit, by class. A
	// class that is missing costs nothing.
	Collectives map[string]Collective
	// RaggedFactor multiplies the collectives when shares are ragged; 0 means 1.
	RaggedFactor float64
	// MicrobatchOverheadMs is paid per unit and pass for every microbatch but
	// the first.
	MicrobatchOverheadMs Overhead
	// StateBytesPerParameter is what a trainable parameter keeps for the whole
	// run: itself, its gradient and the optimizer's state (16 with fp32 Adam).
	StateBytesPerParameter float64
	// GradientBytesPerParameter is what of that is the gradient, which is not there
	// before the unit was reduced; 0 if it is not known.
	GradientBytesPerParameter float64
	// StepBytesPerParameter is what the optimizer's step takes for a moment beside the
	// state, when nothing is computed.
	StepBytesPerParameter float64
	// FrozenBytesPerParameter is what a frozen parameter keeps; 0 means 4.
	FrozenBytesPerParameter float64
	// FixedMs is the part of an iteration that depends on no batch and
	// overlaps with nothing, as the optimizer step.
	FixedMs float64
	// FixedBatches gives every rank its batch by hand; nil leaves them free.
	FixedBatches []int
	// Policies are the activation policies to choose from, the same for every
	// rank; empty means Recompute only.
	Policies []Policy
	// Shares forces even or ragged state; empty leaves the choice free.
	Shares Shares
	// UseAll gives every rank at least one sample.
	UseAll bool
	// ShownOne says that a rank without samples computes one that weighs nothing, as its
	// script is shown one; without it such a rank costs what the costs have at 0. A plan then
	// has samples for every rank if there is one that fits.
	ShownOne bool
	// Links say where the devices are; only pipelines and tensor parallelism ask.
	// Nil where it is not known: the speed is then read off the collectives.
	Links *Links

	used map[int]bool // ranks that must have a sample, to say what that costs
}

// UnitClass is a set of units of one shape.
type UnitClass struct {
	Class string
	// Count is the number of such units in the model.
	Count int
	// Parameters of ONE unit.
	Parameters int64
	// TrainableParameters of ONE unit; equal to Parameters if nothing is frozen.
	TrainableParameters int64
	// WholeBatch units run on the rank's whole local batch at once, as the root
	// unit does; the others run microbatch by microbatch.
	WholeBatch bool
	// Held units are gathered once, before everything else, and reduced once, after
	// it: their collectives overlap with nothing and are not part of their passes.
	// Where no class says so, that holds for the root beside its passes.
	Held bool
	// ReceivedBytes is what has arrived of the reduction of ONE unit before it is added
	// up, with even shares; it grows with a rank's share.
	ReceivedBytes int64
	// OverlapLoss is the part of the shorter one, of a unit's pass and the collectives
	// beside it, that they do not gain by running at once: 0 none, 1 all of it. They
	// share processors and memory, and the last unit has nothing to run beside.
	OverlapLoss float64
	// Inside are other names of its parts: nested units that run together with it
	// have the shares of the class.
	Inside []string
}

// Device is one rank.
type Device struct {
	Rank int
	// Name is the model of the device, for sentences.
	Name string
	// UUID identifies the device; the plan names it so, or by Name without one.
	UUID string
	// UsableMemoryBytes is all that the run may use.
	UsableMemoryBytes int64
	// ReservedBytes is what the context, the libraries and the collectives take.
	ReservedBytes int64
	// OutsideBytes is what of ReservedBytes no tensor can have.
	OutsideBytes int64
	// CountsOutside says that a worker has OutsideBytes in the peak that it reports, as one on
	// a processor has, which counts its whole size.
	CountsOutside bool
	// HostMemoryBytes bounds what Offload puts into host memory; 0 means no bound.
	HostMemoryBytes int64
	// Costs of ONE unit, by class; every class of the problem must be there.
	Costs map[string]ClassCost
}

// ClassCost is what one unit of a class costs on one device.
type ClassCost struct {
	// ForwardMs and BackwardMs are the times of one microbatch; BackwardMs does
	// not include recomputation.
	ForwardMs, BackwardMs Cost
	// MemoryBytes is the peak of computing one microbatch, the gathered unit
	// included. A point at 0 states what a rank without samples needs.
	MemoryBytes Cost
	// FirstMemoryBytes is the same for the first microbatch, which finds no gradients
	// to add its own to; empty if it is not known.
	FirstMemoryBytes Cost
	// LastUnitBytes is what MemoryBytes has for the last unit of the class alone.
	LastUnitBytes float64
	// KeptBytesPerSample is what one unit keeps per sample of the local batch
	// between forward and backward; a policy that is missing keeps nothing.
	KeptBytesPerSample map[Policy]float64
	// OffloadMsPerSample is the time to move what one unit offloads, one way;
	// it overlaps with computing.
	OffloadMsPerSample float64

	keptPeak Cost       // see withoutKept
	kept     [3]float64 // KeptBytesPerSample, by the policy's index
}

// Collective is the time of the collectives of one unit with even shares.
type Collective struct {
	AllGatherMs     float64
	ReduceScatterMs float64
}

// Links are the speeds between devices, in bytes per millisecond; 0 costs no
// time at all.
type Links struct {
	// NodeOf is the node of every rank, counted from 0.
	NodeOf []int
	// Inside is the speed of one device to another, by node.
	Inside []float64
	// Between is the speed of one node to another.
	Between float64
}

// Overhead is paid per unit for every microbatch after the first.
type Overhead struct {
	Forward  float64
	Backward float64
}
