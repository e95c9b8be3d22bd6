package solver

// PlanVersion is the version of the plan document.
const PlanVersion = 1

// TotalPPM is the sum of all state shares, in parts per million.
const TotalPPM = 1_000_000

// Names of strategies.
const (
	StrategyCephalo      = "cephalo"       // uneven batches and state, layered accumulation
	StrategyEven         = "even"          // equal batches and state, layered accumulation
	StrategyEvenOrdinary = "even-ordinary" // equal batches and state, every microbatch through the whole model

	StrategyComputeBalance = "compute-balance" // batches by speed, equal state
	StrategyMemoryBalance  = "memory-balance"  // equal batches, state by memory
	StrategyMegatronHet    = "megatron-het"    // uneven pipeline, tensor parallelism inside a node
	StrategyFlashFlex      = "flashflex"       // unequal pipelines beside each other
)

// Plan is the document that the launcher, the workers and the reports read.
type Plan struct {
	Version      int            `json:"version"`
	Strategy     string         `json:"strategy"`
	Profile      string         `json:"profile"`
	GlobalBatch  int            `json:"global_batch"`
	Shares       Shares         `json:"shares"`
	Ranks        []RankPlan     `json:"ranks"`
	Predicted    PlanPrediction `json:"predicted"`
	Alternatives []Alternative  `json:"alternatives"`
}

// RankPlan is what one rank does.
type RankPlan struct {
	Rank         int    `json:"rank"`
	Device       string `json:"device"`
	Batch        int    `json:"batch"`
	MicroBatches []int  `json:"micro_batches"`
	StatePPM     int    `json:"state_ppm"`
	// ClassStatePPM are the shares of unit classes that are not divided by StatePPM;
	// every rank names the same classes.
	ClassStatePPM map[string]int `json:"class_state_ppm,omitempty"`
	Activations   Policy         `json:"activations"`
	// KeptUnits says of how many units of a class, the last in forward order, the
	// activations are kept where Activations says otherwise.
	KeptUnits map[string]int `json:"kept_units,omitempty"`
	Predicted RankPrediction `json:"predicted"`
}

// RankPrediction is what the rank computes in one iteration, over all units,
// and its peak memory.
type RankPrediction struct {
	ForwardMs  float64 `json:"forward_ms"`
	BackwardMs float64 `json:"backward_ms"`
	// MemoryBytes is what must fit; it is never less than what the rank takes.
	MemoryBytes       int64 `json:"memory_bytes"`
	UsableMemoryBytes int64 `json:"usable_memory_bytes"`
	// PeakMemoryBytes is what the worker is expected to report; 0 if the profile does
	// not say enough.
	PeakMemoryBytes int64 `json:"peak_memory_bytes,omitempty"`
}

// PlanPrediction is what the whole iteration costs.
type PlanPrediction struct {
	IterationMs      float64 `json:"iteration_ms"`
	SamplesPerSecond float64 `json:"samples_per_second"`
	Bottleneck       string  `json:"bottleneck"`
}

// Alternative is another way to run the same problem, and why it was not
// taken. IterationMs is 0 if it does not fit.
type Alternative struct {
	Strategy    string  `json:"strategy"`
	IterationMs float64 `json:"iteration_ms"`
	Reason      string  `json:"reason"`
}

// Allocation is the part of a plan that is chosen; Evaluate predicts the rest.
type Allocation struct {
	Shares Shares
	// Ordinary runs every microbatch through the whole model before the next,
	// with its own collectives, as stock gradient accumulation does.
	Ordinary bool
	Ranks    []RankAllocation
}

// RankAllocation is what one rank is given. MicroBatches sum to Batch and are
// empty for a rank without samples.
type RankAllocation struct {
	Batch        int
	MicroBatches []int
	StatePPM     int
	Activations  Policy
	// ClassStatePPM are the shares of classes that are not divided by StatePPM.
	ClassStatePPM map[string]int
	// KeptUnits is how many units of a class, the last in forward order, keep
	// their activations whatever Activations says.
	KeptUnits map[string]int
}

// Allocation of a plan.
func (p Plan) Allocation() Allocation {
	a := Allocation{Shares: p.Shares, Ordinary: p.Strategy == StrategyEvenOrdinary}
	for _, r := range p.Ranks {
		a.Ranks = append(a.Ranks, RankAllocation{r.Batch, r.MicroBatches, r.StatePPM, r.Activations, r.ClassStatePPM, r.KeptUnits})
	}
	return a
}
