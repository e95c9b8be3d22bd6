package orchestrator

import (
	"context"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/solver"
)

// PlanFile plans from a profile file alone. The problem is returned too, for those who
// want to know why.
func PlanFile(spec Spec) (Planned, solver.Problem, error) {
	p, err := ReadProfileFile(spec.ProfileFile)
	if err != nil {
		return Planned{}, solver.Problem{}, err
	}
	if err := spec.batchForEach(len(p.Devices)); err != nil {
		return Planned{}, solver.Problem{}, err
	}
	batch, _, err := spec.batchByHand()
	if err != nil {
		return Planned{}, solver.Problem{}, err
	}
	if spec.Wishes.Auto {
		batch = len(p.Devices)
	}
	if batch == 0 && p.Script != nil {
		batch = p.Script.BatchPerRank * len(p.Devices)
	}
	if batch == 0 {
		return Planned{}, solver.Problem{}, usage("%s does not say the script's own batch size: give --global-batch", spec.ProfileFile)
	}
	plan, problem, curve, err := spec.solve(p, batch)
	if err != nil {
		return Planned{}, solver.Problem{}, err
	}
	planned := Planned{Plan: plan, Profile: p, Curve: curve, ProfilePath: spec.ProfileFile}
	for _, d := range p.Devices {
		planned.Names = append(planned.Names, d.Name)
	}
	return planned, problem, nil
}

// Profile measures a script's model and says where the profile lies.
func Profile(ctx context.Context, spec Spec, deps Deps) (profiler.Profile, string, error) {
	s, err := open(ctx, spec, deps)
	if err != nil {
		return profiler.Profile{}, "", err
	}
	defer s.close()
	if err := s.obtainProfile(ctx); err != nil {
		_, err = s.conclude(ctx, err)
		return profiler.Profile{}, "", err
	}
	if s.state == Preparing { // it was measured before
		if err := s.enter(Profiling, "measured before", nil); err != nil {
			return profiler.Profile{}, "", err
		}
	}
	return s.profile, s.run.Path("profile.json"), s.enter(Done, "profiled", nil)
}
