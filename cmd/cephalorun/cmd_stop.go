package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

func newStopCommand(a *app, o *options) *cobra.Command {
	wait := defaultGrace
	c := &cobra.Command{
		Use:   "stop [RUN]",
		Short: "Stop a run (the newest one if none is named)",
		Long: `Ask a run's owner to stop it gracefully, and wait until it has. If it still runs after --wait,
that is said and the exit code is 4; the run goes on stopping.
` + exitHelp,
		Example: "  cephalorun stop",
		Args:    exactArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), wait)
			defer cancel()
			return stopRun(ctx, a, o, args)
		},
	}
	c.Flags().DurationVar(&wait, "wait", 2*defaultGrace, "how long to wait for its end")
	return c
}

func stopRun(ctx context.Context, a *app, o *options, args []string) error {
	r, err := rundir.At(o.stateDir).Find(first(args))
	if err != nil {
		return err
	}
	if err := orchestrator.StopRun(ctx, r, unix.SIGTERM); err != nil {
		return err
	}
	return printText(a.stdout, fmt.Sprintf("run %s has stopped\n", r.ID))
}
