package orchestrator

import (
	"fmt"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// ProblemOf is what the planner is asked, given a profile and a global batch.
func ProblemOf(p profiler.Profile, globalBatch int) (solver.Problem, error) {
	problem := solver.Problem{
		Profile:                p.Fingerprint,
		GlobalBatch:            globalBatch,
		Collectives:            map[string]solver.Collective{},
		RaggedFactor:           p.RaggedFactor,
		MicrobatchOverheadMs:   solver.Overhead{Forward: p.MicrobatchOverheadMs.Forward, Backward: p.MicrobatchOverheadMs.Backward},
		StateBytesPerParameter: p.Model.StateBytesPerParameter,

		GradientBytesPerParameter: p.Model.GradientBytesPerParameter,
		StepBytesPerParameter:     p.Model.StepBytesPerParameter,

		FixedMs:  p.FixedMs,
		Policies: policies(p),
		ShownOne: p.Script != nil,
	}
	for _, u := range p.Model.Units {
		problem.Units = append(problem.Units, solver.UnitClass{
			Class: u.Class, Count: u.Count, Parameters: u.Parameters,
			TrainableParameters: u.Trainable(), WholeBatch: u.WholeBatch, Held: u.Held,
			ReceivedBytes: u.ReceivedBytes, OverlapLoss: u.OverlapLoss, Inside: u.Inside,
		})
	}
	for class, c := range p.Collectives {
		problem.Collectives[class] = solver.Collective{AllGatherMs: c.AllGatherMs, ReduceScatterMs: c.ReduceScatterMs}
	}
	if ownBatches(p) {
		for range p.Devices {
			problem.FixedBatches = append(problem.FixedBatches, p.Script.BatchPerRank)
		}
	}
	for i, d := range p.Devices {
		if d.Rank != i {
			return solver.Problem{}, usage("profile: devices[%d] has rank %d: devices must stand in the order of their ranks", i, d.Rank)
		}
		problem.Devices = append(problem.Devices, DeviceOf(d))
	}
	if err := problem.Validate(); err != nil {
		return solver.Problem{}, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return problem, nil
}

// ownBatches says that the script does not draw its batches from a DataLoader over a
// DistributedSampler, so that nobody can deal them.
func ownBatches(p profiler.Profile) bool { return p.Script != nil && p.Script.Data == "fixed" }

// DeviceOf is a device of a profile as the planner sees it.
func DeviceOf(d profiler.ProfileDevice) solver.Device {
	device := solver.Device{
		Rank: d.Rank, Name: d.Name, UUID: d.UUID,
		UsableMemoryBytes: d.UsableMemoryBytes, ReservedBytes: d.ReservedBytes,
		OutsideBytes: d.OutsideBytes, CountsOutside: d.Kind == profiler.KindCPU,
		HostMemoryBytes: d.HostMemoryBytes,
		Costs:           map[string]solver.ClassCost{},
	}
	for class, c := range d.Costs {
		device.Costs[class] = classCost(c)
	}
	return device
}

func classCost(c profiler.UnitCosts) solver.ClassCost {
	out := solver.ClassCost{
		ForwardMs: cost(c.ForwardMs), BackwardMs: cost(c.BackwardMs), MemoryBytes: cost(c.MemoryBytes),
		KeptBytesPerSample: map[solver.Policy]float64{},
		OffloadMsPerSample: c.OffloadMsPerSample,
		LastUnitBytes:      float64(c.LastUnitBytes),
	}
	if c.FirstMemoryBytes != nil {
		out.FirstMemoryBytes = cost(*c.FirstMemoryBytes)
	}
	for policy, bytes := range c.KeptBytesPerSample {
		out.KeptBytesPerSample[solver.Policy(policy)] = bytes
	}
	return out
}

func cost(c profiler.Cost) solver.Cost {
	return solver.Cost{Points: c.Points, Tail: solver.Line{Slope: c.Tail.Slope, Intercept: c.Tail.Intercept}}
}

// policies are the ways to treat activations that the profile has numbers for on every
// device: what was not measured must not look free. Recomputing needs no number.
func policies(p profiler.Profile) []solver.Policy {
	var allowed []solver.Policy
	for _, policy := range []solver.Policy{solver.Keep, solver.Recompute, solver.Offload} {
		if policy == solver.Recompute || measuredEverywhere(p, policy) {
			allowed = append(allowed, policy)
		}
	}
	return allowed
}

func measuredEverywhere(p profiler.Profile, policy solver.Policy) bool {
	for _, u := range p.Model.Units {
		if u.WholeBatch {
			continue // it is neither kept nor run again
		}
		for _, d := range p.Devices {
			if _, ok := d.Costs[u.Class].KeptBytesPerSample[string(policy)]; !ok {
				return false
			}
		}
	}
	return len(p.Devices) > 0
}

// Strategy is which plan to make.
type Strategy string

// The strategies that can be asked for.
const (
	Best Strategy = "best" // the planner's choice
	Even Strategy = "even" // equal batches and shares, for comparison
)

// Solve makes the plan of a problem.
func Solve(p solver.Problem, s Strategy) (solver.Plan, error) {
	if s == Even {
		return solver.Even(p)
	}
	return solver.Solve(p)
}
