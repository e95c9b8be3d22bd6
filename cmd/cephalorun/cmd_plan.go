package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

func newPlanCommand(a *app, o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "plan [flags] [SCRIPT [script's own arguments]]",
		Short: "Say how the work would be divided, and why",
		Long: `Solve for a plan and print it, from a profile file or for a script, which is measured if need
be. With --json the plan (version 1) is printed and nothing else.
` + exitHelp,
		Example: "  cephalorun plan --profile profile.json --global-batch 64 --json\n  cephalorun plan train.py",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return planFromFile(a, o)
			}
			return planScript(c.Context(), a, o, args)
		},
	}
	o.addPlanning(c.Flags())
	c.Flags().SetInterspersed(false)
	return c
}

func planFromFile(a *app, o *options) error {
	if o.profile == "" {
		return fmt.Errorf("%w: plan needs a SCRIPT, or --profile FILE", orchestrator.ErrUsage)
	}
	planned, problem, err := orchestrator.PlanFile(o.spec("", nil))
	if err != nil {
		return err
	}
	if o.json {
		return printPlan(a.stdout, planned.Plan)
	}
	text, err := show.Explanation(problem, planned.Plan)
	if err != nil {
		return err
	}
	return printText(a.stdout, show.Plan(planned.Plan, planned.Names)+text)
}

func planScript(ctx context.Context, a *app, o *options, args []string) error {
	return a.withDeps(ctx, o, func(ctx context.Context, r runner) error {
		r.deps.Events = nil // the plan is the output
		planned, err := r.plan(ctx, o.spec(args[0], args[1:]))
		if err != nil {
			return err
		}
		if o.json {
			return printPlan(a.stdout, planned.Plan)
		}
		// The table was shown on the way; what is new is where the profile lies.
		return printText(a.stdout, "profile: "+planned.ProfilePath+"\n")
	})
}

func printPlan(w io.Writer, p solver.Plan) error {
	data, err := p.Marshal()
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
