package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

func newResumeCommand(a *app, o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume [RUN]",
		Short: "Take up a run that was stopped or lost its supervisor (the newest one if none is named)",
		Long: `Go on with a run in its own folder: with what it was asked for, its global batch, its budget
of restarts and its checkpoints. The script goes on from its newest whole checkpoint, as
after a restart (see --resume-args of the run).
` + exitHelp,
		Example: "  cephalorun resume\n  cephalorun resume 20260102-030405-train",
		Args:    exactArgs(cobra.MaximumNArgs(1)),
		RunE:    func(c *cobra.Command, args []string) error { return resumeRun(c.Context(), a, o, args) },
	}
}

func resumeRun(ctx context.Context, a *app, o *options, args []string) error {
	run, err := rundir.At(o.stateDir).Find(first(args))
	if err != nil {
		return err
	}
	return a.withDeps(ctx, o, func(ctx context.Context, r runner) error {
		_, err := r.resume(ctx, run, o.stateDir)
		return err
	})
}
