package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

func newCheckpointCommand(a *app, o *options) *cobra.Command {
	c := &cobra.Command{
		Use:     "checkpoint",
		Short:   "List, verify and export the checkpoints that scripts saved",
		Long:    "List, verify and export distributed checkpoints (torch.distributed.checkpoint), without a GPU.\n" + exitHelp,
		Example: "  cephalorun checkpoint ls\n  cephalorun checkpoint export checkpoints/step-400 model.safetensors",
		Args:    exactArgs(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newCheckpointList(a, o), newCheckpointVerify(a, o), newCheckpointExport(a, o))
	return c
}

func newCheckpointList(a *app, o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "ls [RUN|FOLDER]",
		Short:   "List the checkpoints of a run (the newest one if none is named) or of a folder",
		Long:    "List checkpoints, oldest first; incomplete ones are named. Files are looked at by name and by size,\nas a run or the checkpoint itself knows them; what is in them is looked at by verify.\n" + exitHelp,
		Example: "  cephalorun checkpoint ls\n  cephalorun checkpoint ls /data/checkpoints",
		Args:    exactArgs(cobra.MaximumNArgs(1)),
		RunE:    func(_ *cobra.Command, args []string) error { return listCheckpoints(a, o, first(args)) },
	}
}

func listCheckpoints(a *app, o *options, what string) error {
	all, err := findCheckpoints(a, o, what)
	if err != nil {
		return err
	}
	if o.json {
		if all == nil {
			all = []orchestrator.Checkpoint{}
		}
		return printJSON(a.stdout, all)
	}
	return printText(a.stdout, orchestrator.CheckpointTable(all))
}

func findCheckpoints(a *app, o *options, what string) ([]orchestrator.Checkpoint, error) {
	if what != "" {
		if info, err := os.Stat(a.path(what)); err == nil && info.IsDir() {
			return orchestrator.CheckpointsIn(a.path(what))
		}
	}
	run, err := rundir.At(o.stateDir).Find(what)
	if errors.Is(err, rundir.ErrNoRun) && what != "" {
		why := "is neither a folder nor a run"
		if _, err := os.Stat(a.path(what)); err == nil {
			why = "is a file, and neither a folder nor a run"
		}
		return nil, fmt.Errorf("%w: %s %s", orchestrator.ErrUsage, what, why)
	}
	if err != nil {
		return nil, err
	}
	return orchestrator.CheckpointsOfRun(run)
}

// path is a path as it was given, in the working folder.
func (a *app) path(given string) string {
	if filepath.IsAbs(given) {
		return given
	}
	return filepath.Join(a.dir, given)
}

func newCheckpointVerify(a *app, o *options) *cobra.Command {
	deep := false
	c := &cobra.Command{
		Use:     "verify CHECKPOINT...",
		Short:   "Look whether every file and every row of a checkpoint is there",
		Long:    "Look whether every file and every row is there; --deep reads every block too.\n" + exitHelp,
		Example: "  cephalorun checkpoint verify --deep checkpoints/step-400",
		Args:    exactArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withCheckpoints(c.Context(), o, func(ctx context.Context, t orchestrator.CheckpointTool) error {
				return verifyCheckpoints(ctx, a, o, t, args, deep)
			})
		},
	}
	c.Flags().BoolVar(&deep, "deep", false, "read every block")
	o.addPython(c.Flags())
	return c
}

func verifyCheckpoints(ctx context.Context, a *app, o *options, t orchestrator.CheckpointTool, paths []string, deep bool) error {
	reports, problems := make([]orchestrator.CheckpointReport, len(paths)), make([]error, len(paths))
	var printing error
	err := t.Verify(ctx, paths, deep, func(i int, r orchestrator.CheckpointReport) {
		reports[i], problems[i] = r, r.Err(paths[i])
		if !o.json && problems[i] == nil && printing == nil {
			printing = printText(a.stdout, fmt.Sprintf("%s is whole: %s, %s in %s\n", paths[i], show.Count(r.Tensors, "tensor"), show.Bytes(r.Bytes), show.Count(r.Files, "file")))
		}
	})
	if o.json && err == nil {
		printing = printJSON(a.stdout, reports)
	}
	// What is wrong with a checkpoint is said also where nobody reads what is printed.
	if err := errors.Join(append(problems, err)...); err != nil {
		return err
	}
	return printing
}

func newCheckpointExport(a *app, o *options) *cobra.Command {
	part := ""
	c := &cobra.Command{
		Use:   "export CHECKPOINT FILE",
		Short: "Write the model of a checkpoint as one safetensors file",
		Long: `Write the model of a checkpoint as one safetensors file under the bare model's names, whatever
shares it was saved under. The file is there whole or not at all.
` + exitHelp,
		Example: "  cephalorun checkpoint export checkpoints/step-400 model.safetensors",
		Args:    exactArgs(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withCheckpoints(c.Context(), o, func(ctx context.Context, t orchestrator.CheckpointTool) error {
				return exportCheckpoint(ctx, a, o, t, args, part)
			})
		},
	}
	c.Flags().StringVar(&part, "part", "", `the key that the script saved the model under (default: "model", or all but the optimizer)`)
	o.addPython(c.Flags())
	return c
}

func exportCheckpoint(ctx context.Context, a *app, o *options, t orchestrator.CheckpointTool, args []string, part string) error {
	r, err := t.Export(ctx, args[0], args[1], part)
	if err != nil {
		return err
	}
	if err := r.Err(args[0]); err != nil {
		return err
	}
	if o.json {
		return printJSON(a.stdout, r)
	}
	return printText(a.stdout, fmt.Sprintf("%s: %s, %s\n", args[1], show.Count(r.Tensors, "tensor"), show.Bytes(r.Bytes)))
}

// withCheckpoints finds a Python and listens for signals while do runs.
func (a *app) withCheckpoints(ctx context.Context, o *options, do func(context.Context, orchestrator.CheckpointTool) error) error {
	ctx, _, release := a.signals(ctx)
	defer release()
	python, err := orchestrator.PythonFinder{Flag: o.python, Environ: a.environ}.Find(ctx)
	if err != nil {
		return err
	}
	tool := orchestrator.CheckpointTool{Python: python, Environ: a.environ, Dir: a.dir}
	if !o.json {
		tool.Tell = func(text string) { fmt.Fprintln(a.stderr, text) }
	}
	return do(ctx, tool)
}
