package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newRunCommand(a *app, o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] SCRIPT [script's own arguments]",
		Short: "Train a script (the same as cephalorun SCRIPT)",
		Long: `Find the devices, measure the script's model on them unless that was done before, plan,
launch, watch, and report.

The script's standard output is printed on standard output; all else is on standard error.
With --json events are printed on standard output, one JSON object a line.
` + exitHelp,
		Example: "  cephalorun run --global-batch 64 train.py --epochs 3",
		Args:    exactArgs(cobra.MinimumNArgs(1)),
		RunE:    func(c *cobra.Command, args []string) error { return runScript(c.Context(), a, o, args) },
	}
	o.addRun(c.Flags())
	c.Flags().SetInterspersed(false)
	return c
}

func runScript(ctx context.Context, a *app, o *options, args []string) error {
	return a.withDeps(ctx, o, func(ctx context.Context, r runner) error {
		_, err := r.run(ctx, o.spec(args[0], args[1:]))
		return err
	})
}
