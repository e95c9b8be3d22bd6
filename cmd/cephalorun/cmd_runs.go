package main

import (
	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

func newRunsCommand(a *app, o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "runs",
		Short:   "List the runs of the state folder",
		Long:    "List runs, oldest first: id, state, steps, script.\n" + exitHelp,
		Example: "  cephalorun runs --state-dir /data/runs",
		Args:    exactArgs(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return listRuns(a, o) },
	}
}

func listRuns(a *app, o *options) error {
	runs, err := rundir.At(o.stateDir).List()
	if err != nil {
		return err
	}
	summaries := []orchestrator.Summary{}
	for _, r := range runs {
		summaries = append(summaries, orchestrator.Summarise(r))
	}
	if o.json {
		return printJSON(a.stdout, summaries)
	}
	return printText(a.stdout, orchestrator.SummaryTable(summaries))
}
