package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/output"
)

const (
	// screenPatience is how long a screen may take nothing before it is not waited for.
	screenPatience = 2 * time.Second
	// lastWords is how long a screen may take for what is said at the end.
	lastWords = 5 * time.Second
)

// run executes a command line and returns the exit code. It is the only place that
// prints an error.
func run(args []string, a *app) int {
	a.screens = output.NewPatient(a.stderr, screenPatience)
	defer a.screens.Close(lastWords)
	out := printed{a.stdout}
	help := &helped{printed: out}
	own := *a
	own.stdout = out
	root, o := newRoot(&own)
	root.SetArgs(args)
	root.SetOut(help)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil && help.gone {
		err = errReaderGone
	}
	code := exitCode(err)
	if err != nil && !errors.Is(err, errReaderGone) {
		printError(a.screens.Writer(a.stderr), a, o, err, code)
	}
	return code
}

// newRoot builds the command line. The root itself runs a script, as torchrun does.
func newRoot(a *app) (*cobra.Command, *options) {
	o := &options{}
	root := &cobra.Command{
		Use:   "cephalorun [flags] SCRIPT [script's own arguments]",
		Short: "Train a PyTorch FSDP script on unequal devices at the speed of all of them together",
		Long: `Train a PyTorch FSDP script on unequal devices at the speed of all of them together, with
the result that one big device would have given.

Flags before SCRIPT are cephalorun's; everything after it is the script's.
` + exitHelp,
		Example: `  cephalorun train.py --epochs 3
  cephalorun --global-batch 64 train.py
  cephalorun --devices devices.yaml train.py`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return runScript(c.Context(), a, o, args)
		},
	}
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error { return refuseEmpty(c, args) }
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w", orchestrator.ErrUsage, err)
	})
	o.addGlobal(root.PersistentFlags(), a.environ)
	o.addRun(root.Flags())
	root.Flags().SetInterspersed(false)
	root.AddCommand(
		newRunCommand(a, o), newProfileCommand(a, o), newPlanCommand(a, o), newSimulateCommand(a, o), newDevicesCommand(a, o),
		newDoctorCommand(a, o), newRunsCommand(a, o), newStatusCommand(a, o), newLogsCommand(a, o),
		newStopCommand(a, o), newResumeCommand(a, o), newCheckpointCommand(a, o), newVersionCommand(a, o),
	)
	return root, o
}

// refuseEmpty refuses a first argument, or the value of a flag, that is empty: it comes from a
// variable that is not set, and leaving it out would mean something else, such as the newest run.
func refuseEmpty(c *cobra.Command, args []string) error {
	if strings.HasPrefix(c.Name(), "__") {
		return nil // completion asks with what is not typed yet
	}
	if len(args) > 0 && args[0] == "" {
		return fmt.Errorf("%w: the first argument is empty, in: %s", orchestrator.ErrUsage, c.UseLine())
	}
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && err == nil {
			err = fmt.Errorf("%w: --%s is empty; give it a value, or leave it out", orchestrator.ErrUsage, f.Name)
		}
	})
	return err
}

// exactArgs is cobra's check of the number of arguments as an error of usage.
func exactArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return fmt.Errorf("%w: %w", orchestrator.ErrUsage, err)
		}
		return nil
	}
}
