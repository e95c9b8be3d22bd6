package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler/cache"
	"github.com/cephalorun/cephalorun/solver"
)

const (
	// memoryShare is by which part of what a rank held it holds less, at first.
	memoryShare = 20
	// lightenTries bounds the search for a plan that gives the rank less.
	lightenTries = 12
)

// lighten puts what a rank was found to need into the profile, and plans so that it holds
// less than it did. Other ranks' numbers stay as they are.
func (s *session) lighten(f Failure) error {
	before, rank := s.plan, f.Rank
	device := &s.profile.Devices[rank]
	was := before.Ranks[rank]
	told := f.NeededBytes - was.Predicted.MemoryBytes
	s.screen.say("rank %d (%s) ran out of memory at microbatches of %s%s", rank, device.Name, sizes(was), more(told))
	step := max(1<<10, (was.Predicted.MemoryBytes-device.ReservedBytes)/memoryShare)
	// Where the numbers say that it fits, less is there than they say: what the rank held
	// must not fit any more.
	missing := max(told, device.UsableMemoryBytes-was.Predicted.MemoryBytes+step)
	for range lightenTries {
		device.ReservedBytes += missing
		problem, err := ProblemOf(s.profile, s.restarts.GlobalBatch)
		if err != nil {
			return err
		}
		plan, err := Solve(problem, s.spec.Strategy)
		if err != nil {
			return err
		}
		now := plan.Ranks[rank]
		if holdsLess(now, was) {
			s.screen.say("re-planned: rank %d goes from microbatches of %s, batch %d, to %s, batch %d; the global batch is %d as before",
				rank, sizes(was), was.Batch, sizes(now), now.Batch, plan.GlobalBatch)
			if err := s.replan(); err != nil {
				return err
			}
			return s.rememberMemory(rank)
		}
		missing, step = step, 2*step
	}
	return machine("%s has too little memory for its part, and no plan gives it less", device.Name)
}

// more says how much was missing, if it is known.
func more(missing int64) string {
	if missing <= 0 {
		return ""
	}
	return fmt.Sprintf(" (it needs %s more than planned)", show.Bytes(missing))
}

// holdsLess compares what a rank is given.
func holdsLess(now, was solver.RankPlan) bool {
	return largest(now) < largest(was) || now.Batch < was.Batch || now.StatePPM < was.StatePPM ||
		was.Activations == solver.Keep && now.Activations != solver.Keep ||
		now.Activations == was.Activations && kept(now) < kept(was)
}

// kept is how many units a rank keeps although it does not keep all.
func kept(r solver.RankPlan) int {
	sum := 0
	for _, n := range r.KeptUnits {
		sum += n
	}
	return sum
}

func largest(r solver.RankPlan) int {
	if len(r.MicroBatches) == 0 {
		return 0
	}
	return slices.Max(r.MicroBatches)
}

func sizes(r solver.RankPlan) string {
	if len(r.MicroBatches) == 0 {
		return "0"
	}
	var all []string
	for i, n := range r.MicroBatches {
		if i == 0 || n != r.MicroBatches[i-1] {
			all = append(all, fmt.Sprint(n))
		}
	}
	return strings.Join(all, " and ")
}

// rememberMemory keeps what was learnt of a device for this run and the next ones.
func (s *session) rememberMemory(rank int) error {
	learnt := s.profile.Devices[rank]
	for i := range s.whole.Devices {
		if s.whole.Devices[i].UUID == learnt.UUID {
			s.whole.Devices[i].ReservedBytes = learnt.ReservedBytes
		}
	}
	if s.spec.ProfileFile != "" {
		return nil
	}
	if _, err := cache.New(s.spec.StateDir).Store(s.whole); err != nil {
		s.screen.say("note: what was learnt of the memory of %s is not kept for the next run: %v", learnt.Name, err)
	}
	return nil
}
