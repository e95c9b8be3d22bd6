package main

import (
	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

func newStatusCommand(a *app, o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "status [RUN]",
		Short:   "Say where a run stands (the newest one if none is named)",
		Long:    "Say where a run stands: its state, its owner, its last step, and while it runs what the machine says:\nmemory, disks, network and GPUs.\n" + exitHelp,
		Example: "  cephalorun status\n  cephalorun status 20260102-030405-train --json",
		Args:    exactArgs(cobra.MaximumNArgs(1)),
		RunE:    func(_ *cobra.Command, args []string) error { return showStatus(a, o, args) },
	}
}

func showStatus(a *app, o *options, args []string) error {
	r, err := rundir.At(o.stateDir).Find(first(args))
	if err != nil {
		return err
	}
	s := orchestrator.Summarise(r)
	if o.json {
		return printJSON(a.stdout, s)
	}
	return printText(a.stdout, s.Text())
}

// first is the only argument, or nothing.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
