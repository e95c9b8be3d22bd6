package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

func newDoctorCommand(a *app, o *options) *cobra.Command {
	c := &cobra.Command{
		Use:     "doctor [flags]",
		Short:   "Say whether this machine can run it, and what is missing",
		Long:    "Look at Python, PyTorch, devices, shared memory and the state folder.\n" + exitHelp,
		Example: "  cephalorun doctor",
		Args:    exactArgs(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return diagnose(c.Context(), a, o) },
	}
	o.addDevices(c.Flags())
	o.addPython(c.Flags())
	return c
}

func diagnose(ctx context.Context, a *app, o *options) error {
	checks := orchestrator.Diagnose(ctx, o.spec("", nil), orchestrator.Deps{Environ: a.environ, GPUs: a.gpus, CPU: a.cpu})
	if o.json {
		if err := printJSON(a.stdout, checks); err != nil {
			return err
		}
	} else if err := printText(a.stdout, show.Checks(checks)); err != nil {
		return err
	}
	for _, c := range checks {
		if c.Level == show.Fatal {
			return fmt.Errorf("%w: %s", orchestrator.ErrMachine, c.Name)
		}
	}
	return nil
}
