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
	var f planFlags
	c := &cobra.Command{
		Use:   "plan [flags] [SCRIPT [script's own arguments]]",
		Short: "Say how the work would be divided, and why",
		Long: `Solve for a plan and print it, from a profile file or for a script, which is measured if need
be. With --json the plan (version 1) is printed and nothing else; beside --explain, --compare,
--without or --add it is the field "plan" of what is printed.

What would be otherwise (without a device, with the other kind of shares, with more memory) comes
from a search that is cut off early: a plan that is better still may exist, so a gain is never
overstated. Plans themselves, also those of --without and --add, are solved to the end.
` + exitHelp,
		Example: "  cephalorun plan --profile profile.json --global-batch 64 --json\n  cephalorun plan train.py\n  cephalorun plan --compare --without 3 --profile profile.json --global-batch 64",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return planFromFile(a, o, f)
			}
			return planScript(c.Context(), a, o, f, args)
		},
	}
	o.addPlanning(c.Flags())
	f.register(c.Flags())
	c.Flags().SetInterspersed(false)
	return c
}

func planFromFile(a *app, o *options, f planFlags) error {
	if o.profile == "" {
		return fmt.Errorf("%w: plan needs a SCRIPT, or --profile FILE", orchestrator.ErrUsage)
	}
	planned, problem, err := orchestrator.PlanFile(o.spec("", nil))
	if err != nil {
		return err
	}
	return printPlanned(a, o, f, planned, problem, show.Plan(planned.Plan, planned.Names, len(o.batches) > 0))
}

// printPlanned prints the plan, what else was asked, and why the plan is as it is, after
// what was shown before.
func printPlanned(a *app, o *options, f planFlags, planned orchestrator.Planned, problem solver.Problem, before string) error {
	for _, doubt := range planned.Profile.Doubts() {
		fmt.Fprintf(a.stderr, "note: %s: %s\n", planned.ProfilePath, doubt)
	}
	if o.json && !f.asked() {
		return printPlan(a.stdout, planned.Plan)
	}
	record, answers, err := f.answerAll(planned, problem, a.screen)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(a.stdout, record)
	}
	if len(planned.Curve) > 0 {
		before = show.Curve(planned.Curve) + before
	}
	return printText(a.stdout, before+answers)
}

func planScript(ctx context.Context, a *app, o *options, f planFlags, args []string) error {
	return a.withDeps(ctx, o, func(ctx context.Context, r runner) error {
		r.deps.Events = nil // the plan is the output
		planned, err := r.plan(ctx, o.spec(args[0], args[1:]))
		if err != nil {
			return err
		}
		problem, err := orchestrator.ProblemOfPlan(planned, o.spec("", nil))
		if err != nil {
			return err
		}
		// The table was shown on the way; what is new is why, and where the profile lies.
		return printPlanned(a, o, f, planned, problem, "profile: "+planned.ProfilePath+"\n")
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
