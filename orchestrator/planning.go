package orchestrator

import (
	"fmt"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// makePlan solves for a plan and writes it.
func (s *session) makePlan() error {
	if err := s.enter(Planning, "", nil); err != nil {
		return err
	}
	batch, why, err := s.globalBatch()
	if err != nil {
		return err
	}
	spec := s.spec
	if s.restarts.GlobalBatch > 0 { // wishes were for the devices of the start
		spec.Wishes = Wishes{}
	}
	if s.plan, _, s.curve, err = spec.solve(s.profile, batch); err != nil {
		return err
	}
	s.screen.say("global batch %d: %s", s.plan.GlobalBatch, why)
	return s.writePlan()
}

// globalBatch is what was asked for, or what the script would have under torchrun with
// as many ranks.
func (s *session) globalBatch() (batch int, why string, err error) {
	if s.restarts.GlobalBatch > 0 {
		return s.restarts.GlobalBatch, "as before in this run", nil
	}
	if ownBatches(s.profile) {
		return s.ownGlobalBatch()
	}
	if s.spec.Wishes.Auto {
		return len(s.devices.Chosen), "the most samples per second", nil
	}
	if batch, why, err = s.spec.batchByHand(); err != nil || batch > 0 {
		return batch, why, err
	}
	if s.profile.Script == nil || s.profile.Script.BatchPerRank < 1 {
		return 0, "", usage("the script's own batch size is not known: give --global-batch")
	}
	per, ranks := s.profile.Script.BatchPerRank, len(s.devices.Chosen)
	return per * ranks, fmt.Sprintf("%d of the script's loader on %s", per, show.Count(ranks, "rank")), nil
}

// ownGlobalBatch is that of a script whose batches cannot be dealt.
func (s *session) ownGlobalBatch() (batch int, why string, err error) {
	per, ranks := s.profile.Script.BatchPerRank, len(s.devices.Chosen)
	if s.spec.Wishes.Auto || s.spec.Wishes.Batches != nil || (s.spec.GlobalBatch > 0 && s.spec.GlobalBatch != per*ranks) {
		return 0, "", usage("--global-batch and --batches ask for other batches, and the script makes its own, %d samples on each of %d ranks: only a DataLoader over a DistributedSampler can be dealt other ones",
			per, ranks)
	}
	return per * ranks, fmt.Sprintf("the script makes its own batches, %d samples on each of %d ranks; only a DataLoader over a DistributedSampler can be dealt unequal ones", per, ranks), nil
}

// sayIdle names the devices without samples, for what the script sees there.
func (s *session) sayIdle() {
	for i, r := range s.plan.Ranks {
		if r.Batch == 0 {
			s.screen.say("note: %s has no samples; its script is shown one that weighs nothing, and what it adds up over ranks by itself contains it", s.devices.Chosen[i].Name)
		}
	}
}

func (s *session) writePlan() error {
	data, err := s.plan.Marshal()
	if err != nil {
		return err
	}
	if err := rundir.WriteFile(s.run.Path(rundir.PlanFile), data); err != nil {
		return err
	}
	s.note(events.Event{Kind: events.PlanMade, Message: s.plan.Strategy, Samples: s.plan.GlobalBatch, StepMs: s.plan.Predicted.IterationMs})
	s.screen.say("%s", show.Plan(s.plan, s.names(), s.restarts.GlobalBatch == 0 && s.spec.Wishes.Batches != nil))
	s.sayIdle()
	return nil
}

// givenPlan takes the plan that the user names; it must fit the devices.
func (s *session) givenPlan() error {
	plan, err := ReadPlanFile(s.spec.PlanFile)
	if err != nil {
		return err
	}
	if err := planFits(s.spec.PlanFile, plan, s.devices.Chosen); err != nil {
		return err
	}
	if s.spec.GlobalBatch > 0 && s.spec.GlobalBatch != plan.GlobalBatch {
		return usage("--global-batch is %d and the plan %s is for %d", s.spec.GlobalBatch, s.spec.PlanFile, plan.GlobalBatch)
	}
	s.plan = plan
	return nil
}

// planOfThisModel compares a given plan with the profile that it was made from.
func (s *session) planOfThisModel(fingerprint string) error {
	if s.plan.Profile != "" && s.plan.Profile != fingerprint {
		return usage("plan %s was made for another model or set-up (%.15s… and not %.15s…)", s.spec.PlanFile, s.plan.Profile, fingerprint)
	}
	return nil
}

// ReadPlanFile reads a plan; whatever is wrong with it is the user's to mend.
func ReadPlanFile(path string) (solver.Plan, error) {
	data, err := profiler.ReadInput(path, profiler.MostInputBytes)
	if err != nil {
		return solver.Plan{}, usage("read plan: %w", err)
	}
	plan, err := solver.ParsePlan(data)
	if err != nil {
		return solver.Plan{}, usage("%s: %w", path, err)
	}
	return plan, nil
}

func planFits(source string, plan solver.Plan, devices []profiler.Device) error {
	if len(plan.Ranks) != len(devices) {
		return usage("plan %s is for %s, and %d are used here", source, show.Count(len(plan.Ranks), "device"), len(devices))
	}
	for i, r := range plan.Ranks {
		if r.Device != devices[i].UUID && r.Device != devices[i].Name {
			return usage("plan %s has %s at rank %d, and here it is %s (%s)", source, r.Device, i, devices[i].Name, devices[i].UUID)
		}
	}
	return nil
}
