package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

func newProfileCommand(a *app, o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "profile [flags] [SCRIPT [script's own arguments]]",
		Short: "Measure a script's model on every device, or the devices themselves",
		Long: `With SCRIPT: run it up to its first training forward, measure its units on every device, and
keep the result under the state folder. Without: measure matrix products, memory, the link to
the host and collectives.
` + exitHelp,
		Example: "  cephalorun profile train.py\n  cephalorun profile --devices devices.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return profileHardware(c.Context(), a, o)
			}
			return profileScript(c.Context(), a, o, args)
		},
	}
	o.addDevices(c.Flags())
	o.addPython(c.Flags())
	o.addStop(c.Flags())
	c.Flags().BoolVar(&o.remeasure, "remeasure", false, "measure again, also when there is a profile")
	c.Flags().SetInterspersed(false)
	return c
}

func profileScript(ctx context.Context, a *app, o *options, args []string) error {
	return a.withDeps(ctx, o, func(ctx context.Context, r runner) error {
		r.deps.Events = nil // the profile itself is the output
		p, path, err := r.profile(ctx, o.spec(args[0], args[1:]))
		if err != nil {
			return err
		}
		if o.json {
			return printJSON(a.stdout, p)
		}
		return printText(a.stdout, show.Profile(p, path))
	})
}

func profileHardware(ctx context.Context, a *app, o *options) error {
	return a.withDeps(ctx, o, func(ctx context.Context, r runner) error {
		r.deps.Events = nil
		list, err := r.hardware(ctx, o.spec("", nil))
		if err != nil {
			return err
		}
		if o.json {
			return printJSON(a.stdout, list)
		}
		return printText(a.stdout, show.HardwareTable(list))
	})
}
