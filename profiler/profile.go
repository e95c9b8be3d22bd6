package profiler

import "encoding/json"

// ProfileVersion is the only version of the profile file that is read.
const ProfileVersion = 1

// Extra holds fields of a file that this version does not know; they are
// written back as they were.
type Extra map[string]json.RawMessage

// Profile is what a model costs on each device: profile v1.
type Profile struct {
	Version     int                   `json:"version"`
	Fingerprint string                `json:"fingerprint,omitempty"`
	Model       Model                 `json:"model"`
	Devices     []ProfileDevice       `json:"devices"`
	Collectives map[string]Collective `json:"collectives"`
	// RaggedFactor is what unequal shares cost on collectives (1 = nothing).
	RaggedFactor         float64  `json:"ragged_factor"`
	MicrobatchOverheadMs Overhead `json:"microbatch_overhead_ms"`
	// FixedMs is what a step takes and nothing overlaps: the optimizer's step.
	FixedMs  float64   `json:"fixed_ms,omitempty"`
	Script   *Script   `json:"script,omitempty"`
	Measured *Measured `json:"measured,omitempty"`
	Extra    Extra     `json:"-"`
}

// Model is the model as the script built it.
type Model struct {
	Name                   string  `json:"name"`
	Parameters             int64   `json:"parameters"`
	TrainableParameters    int64   `json:"trainable_parameters,omitempty"`
	StateBytesPerParameter float64 `json:"state_bytes_per_parameter"`
	// GradientBytesPerParameter is what of the state is the gradient; 0 when the file
	// does not say.
	GradientBytesPerParameter float64 `json:"gradient_bytes_per_parameter,omitempty"`
	// StepBytesPerParameter is what the optimizer's step takes for a moment beside the
	// state.
	StepBytesPerParameter float64 `json:"step_bytes_per_parameter,omitempty"`
	Optimizer             string  `json:"optimizer,omitempty"`
	DType                 string  `json:"dtype,omitempty"`
	Units                 []Unit  `json:"units"`
	Extra                 Extra   `json:"-"`
}

// Unit is a class of equal units. Parameters are those of one unit.
type Unit struct {
	Class      string `json:"class"`
	Count      int    `json:"count"`
	Parameters int64  `json:"parameters"`
	// TrainableParameters of one unit; nil when the file does not say, which
	// means all of them.
	TrainableParameters *int64 `json:"trainable_parameters,omitempty"`
	// WholeBatch marks a unit that runs on the whole local batch at once.
	WholeBatch bool `json:"whole_batch,omitempty"`
	// Held marks a unit that is gathered once, from the forward to the end of the
	// backward, as the root unit is.
	Held bool `json:"held,omitempty"`
	// ReceivedBytes is what has arrived of the reduction of one unit before it is added
	// up, with even shares; it grows with a rank's share.
	ReceivedBytes int64 `json:"received_bytes,omitempty"`
	// OverlapLoss is the part of the shorter one, of a unit's compute and its
	// collectives, that is not gained by running both at once: 0 to 1.
	OverlapLoss float64 `json:"overlap_loss,omitempty"`
	// WholeBatchReason says why, where it need not be so.
	WholeBatchReason string `json:"whole_batch_reason,omitempty"`
	// Inside are the kinds of nested units that run together with the unit and
	// are counted with it.
	Inside []string `json:"inside,omitempty"`
	Extra  Extra    `json:"-"`
}

// Trainable is the number of parameters of one unit that get gradients.
func (u Unit) Trainable() int64 {
	if u.TrainableParameters == nil {
		return u.Parameters
	}
	return *u.TrainableParameters
}

// ProfileDevice is one rank's device with its costs by unit class.
type ProfileDevice struct {
	Rank              int         `json:"rank"`
	Node              string      `json:"node,omitempty"`
	Kind              Kind        `json:"kind"`
	Name              string      `json:"name"`
	UUID              string      `json:"uuid,omitempty"`
	Capability        *Capability `json:"capability,omitempty"`
	BF16              *bool       `json:"bf16,omitempty"`
	MemoryBytes       int64       `json:"memory_bytes"`
	UsableMemoryBytes int64       `json:"usable_memory_bytes"`
	ReservedBytes     int64       `json:"reserved_bytes"`
	// OutsideBytes is what of ReservedBytes no tensor can have: the context, and what
	// the allocator cannot hand out.
	OutsideBytes int64 `json:"outside_bytes,omitempty"`
	// HostMemoryBytes is what offloading may take of the host's memory; 0 when
	// the file does not say, which means no limit.
	HostMemoryBytes int64 `json:"host_memory_bytes,omitempty"`
	// ClockMHz is the lowest clock that the GPU was seen at while it was busy measuring,
	// MaxClockMHz what it could run at, and Throttled what held it back: heat, power, power
	// brake. 0 and empty when nothing was seen.
	ClockMHz    int      `json:"clock_mhz,omitempty"`
	MaxClockMHz int      `json:"max_clock_mhz,omitempty"`
	Throttled   []string `json:"throttled,omitempty"`

	Costs map[string]UnitCosts `json:"costs"`
	Extra Extra                `json:"-"`
}

// UnitCosts is what one unit costs on one device, by microbatch size.
type UnitCosts struct {
	ForwardMs   Cost `json:"forward_ms"`
	BackwardMs  Cost `json:"backward_ms"` // without recomputation
	MemoryBytes Cost `json:"memory_bytes"`
	// FirstMemoryBytes is the same for the first microbatch, which finds no gradients to
	// add its own to; nil when the file does not say.
	FirstMemoryBytes *Cost `json:"first_memory_bytes,omitempty"`
	// LastUnitBytes is what MemoryBytes has for the last unit of the class in forward
	// order alone, which may have a larger neighbour than the others.
	LastUnitBytes int64 `json:"last_unit_bytes,omitempty"`
	// KeptBytesPerSample is what one unit keeps per sample of the local batch
	// between forward and backward, by policy: keep, recompute, offload.
	KeptBytesPerSample map[string]float64 `json:"kept_bytes_per_sample,omitempty"`
	// OffloadMsPerSample is the time to move what one unit offloads, one way.
	OffloadMsPerSample float64 `json:"offload_ms_per_sample,omitempty"`
	Extra              Extra   `json:"-"`
}

// Collective is what gathering and reducing one unit takes.
type Collective struct {
	AllGatherMs     float64 `json:"all_gather_ms"`
	ReduceScatterMs float64 `json:"reduce_scatter_ms"`
	Extra           Extra   `json:"-"`
}

// Overhead is what each microbatch after the first adds, in milliseconds.
type Overhead struct {
	Forward  float64 `json:"forward"`
	Backward float64 `json:"backward"`
	Extra    Extra   `json:"-"`
}

// Script is what the script would do by itself.
type Script struct {
	BatchPerRank int    `json:"batch_per_rank"`
	Data         string `json:"data"` // distributed-sampler | fixed
	Samples      int64  `json:"samples"`
	Extra        Extra  `json:"-"`
}

// Measured says with what and when the profile was measured.
type Measured struct {
	Torch  string `json:"torch,omitempty"`
	Driver string `json:"driver,omitempty"`
	Time   string `json:"time,omitempty"` // RFC 3339
	// Spread is the largest relative spread of repeated measurements, by class.
	Spread map[string]float64 `json:"spread,omitempty"`
	Extra  Extra              `json:"-"`
}
