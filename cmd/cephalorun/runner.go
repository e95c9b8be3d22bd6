package main

import (
	"context"
	"fmt"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
)

// runner calls the orchestrator with the dependencies of this process.
type runner struct{ deps orchestrator.Deps }

func (r runner) run(ctx context.Context, s orchestrator.Spec) (show.Report, error) {
	return orchestrator.Run(ctx, s, r.deps)
}

func (r runner) resume(ctx context.Context, run *rundir.Run, stateDir string) (show.Report, error) {
	return orchestrator.Resume(ctx, run, stateDir, r.deps)
}

func (r runner) plan(ctx context.Context, s orchestrator.Spec) (orchestrator.Planned, error) {
	return orchestrator.Plan(ctx, s, r.deps)
}

func (r runner) profile(ctx context.Context, s orchestrator.Spec) (profiler.Profile, string, error) {
	return orchestrator.Profile(ctx, s, r.deps)
}

func (r runner) hardware(ctx context.Context, s orchestrator.Spec) ([]show.Hardware, error) {
	return orchestrator.Hardware(ctx, s, r.deps)
}

// withDeps listens for signals while do runs.
func (a *app) withDeps(ctx context.Context, o *options, do func(context.Context, runner) error) error {
	if a.dirErr != nil {
		return fmt.Errorf("%w: the working folder is gone (%w); change into one that is there", orchestrator.ErrUsage, a.dirErr)
	}
	ctx, force, release := a.signals(ctx)
	defer release()
	deps, err := a.deps(o, force)
	if err != nil {
		return err
	}
	return do(ctx, runner{deps})
}
