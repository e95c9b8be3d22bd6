package orchestrator

import (
	"context"
	"fmt"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

const (
	// planGain is by how much a plan must be faster to be worth a restart.
	planGain = 0.05
	// restTimes is for how many times the steps of a lasting drift nothing is decided
	// after a decision; it doubles with every plan that was changed, so that a device that
	// heats up and cools down does not make the plan go to and fro.
	restTimes = 5
)

// betterPlan is what a lasting drift leads to.
type betterPlan struct {
	factors map[string]float64 // by how much longer each device computes, by UUID
	why     string
	// nowMs is what a step takes under the plan in use, by what was measured; thenMs what
	// it would take under the best one.
	nowMs, thenMs float64
	err           error
	saved         bool // a checkpoint was saved since
}

// pays says that the change is worth a restart.
func (b *betterPlan) pays() bool { return b.err == nil && b.thenMs <= b.nowMs*(1-planGain) }

// watchDrift looks for a better plan once a rank is lastingly slower or faster than planned.
func (s *session) watchDrift(step show.Step) {
	s.takeBetterPlan()
	factors, rank, lasting := s.drift.add(step)
	if !lasting || s.better != nil || s.solving != nil || step.Number < s.restUntil || !s.mayChangePlan() {
		return
	}
	s.restUntil = step.Number + restTimes<<min(s.replanned, 10)*s.spec.ReplanAfter
	found := &betterPlan{factors: map[string]float64{}}
	for i, d := range s.devices.Chosen {
		found.factors[d.UUID] = factors[i]
	}
	found.why = fmt.Sprintf("rank %d (%s) has computed for %.2f times as long as planned over %d steps, the ranks together for %.2f times",
		rank, s.devices.Chosen[rank].Name, factors[rank], s.spec.ReplanAfter, middle(append([]float64(nil), factors...)))
	solving := make(chan *betterPlan, 1)
	s.solving = solving
	profile, plan, batch, strategy := s.profile.Drifted(found.factors), s.plan, s.restarts.GlobalBatch, s.spec.Strategy
	go func() { // a large problem takes seconds, in which steps go on
		found.nowMs, found.thenMs, found.err = comparePlans(profile, plan, batch, strategy)
		solving <- found
	}()
}

// takeBetterPlan decides on a plan that was looked for.
func (s *session) takeBetterPlan() {
	var found *betterPlan
	select {
	case found = <-s.solving:
	default:
		return
	}
	s.solving = nil
	switch {
	case found.err != nil:
		s.screen.say("note: %s; no better plan is found: %v", found.why, found.err)
	case found.pays():
		s.better = found
		s.screen.say("note: %s; a plan with %s a step instead of %s is used from the next checkpoint on", found.why, show.Ms(found.thenMs), show.Ms(found.nowMs))
	default:
		s.screen.say("note: %s; the best plan would take %s a step instead of %s, so the plan stays", found.why, show.Ms(found.thenMs), show.Ms(found.nowMs))
	}
}

// comparePlans predicts a step under a plan and under the best one.
func comparePlans(p profiler.Profile, plan solver.Plan, batch int, strategy Strategy) (nowMs, thenMs float64, err error) {
	problem, err := ProblemOf(p, batch)
	if err != nil {
		return 0, 0, err
	}
	now, err := solver.Evaluate(problem, plan.Allocation())
	if err != nil {
		return 0, 0, err
	}
	best, err := Solve(problem, strategy)
	if err != nil {
		return 0, 0, err
	}
	return now.IterationMs, best.Predicted.IterationMs, nil
}

// mayChangePlan says that the plan is ours, and that the script is known to go on from a
// checkpoint: what only makes it faster must not be able to end it.
func (s *session) mayChangePlan() bool {
	return s.spec.PlanFile == "" && s.spec.Wishes.Batches == nil && (len(s.spec.ResumeArgs) > 0 || s.resumedAt > 0)
}

// isBetter says that the attempt is to stop for a plan that pays.
func (s *session) isBetter() bool {
	s.takeBetterPlan()
	return s.better != nil && s.better.saved
}

// changePlan plans for what is known by now: devices that are there again, and what ranks
// were found to compute.
func (s *session) changePlan(ctx context.Context) error {
	why := "a device is back"
	better := s.better
	changed := better != nil && better.saved
	if changed {
		why = better.why
		s.replanned++
		if s.drifted == nil {
			s.drifted = map[string]float64{}
		}
		for uuid, factor := range better.factors {
			before, known := s.drifted[uuid]
			if !known {
				before = 1
			}
			s.drifted[uuid] = before * factor
		}
	}
	if err := s.enter(Restarting, why, nil); err != nil {
		return err
	}
	s.restarts.Total++
	if err := s.restarts.write(s.run); err != nil {
		return err
	}
	present, err := s.present(ctx)
	if err != nil || !changed && sameUUIDs(present, s.devices.Chosen) {
		return err
	}
	return s.replanOn(present)
}
