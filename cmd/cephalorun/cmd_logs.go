package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/output"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
)

// logOptions are the flags of logs.
type logOptions struct {
	rank   int
	lines  int
	follow bool
}

func newLogsCommand(a *app, o *options) *cobra.Command {
	l := logOptions{}
	c := &cobra.Command{
		Use:     "logs [RUN]",
		Short:   "Print what the ranks of a run printed (the newest run if none is named)",
		Long:    "Print the last lines of the ranks' logs, and with -f what they print from now on.\n" + exitHelp,
		Example: "  cephalorun logs -f --rank 1",
		Args:    exactArgs(cobra.MaximumNArgs(1)),
		RunE:    func(c *cobra.Command, args []string) error { return printLogs(c.Context(), a, o, l, args) },
	}
	c.Flags().IntVar(&l.rank, "rank", -1, "this rank only (-1: all)")
	c.Flags().IntVarP(&l.lines, "lines", "n", 100, "how many of the last lines (-1: all)")
	c.Flags().BoolVarP(&l.follow, "follow", "f", false, "go on until the run has ended")
	return c
}

func printLogs(ctx context.Context, a *app, o *options, l logOptions, args []string) error {
	if l.rank < -1 {
		return fmt.Errorf("%w: --rank is %d; it must be at least 0, or -1 for all ranks", orchestrator.ErrUsage, l.rank)
	}
	if l.lines < -1 {
		return fmt.Errorf("%w: -n is %d lines; it must be at least 0, or -1 for all", orchestrator.ErrUsage, l.lines)
	}
	r, err := rundir.At(o.stateDir).Find(first(args))
	if err != nil {
		return err
	}
	readers, err := logReaders(r, l, a.stdout)
	if err != nil {
		return err
	}
	ctx, _, release := a.signals(ctx)
	defer release()
	out, _ := a.stdout.(printed)
	over := func() bool { return !r.Running() || out.left() != nil }
	if err := readAll(ctx, readers, l.follow, over); err != nil {
		return err
	}
	if l.follow && r.Running() {
		return out.left()
	}
	return nil
}

// logReaders are the readers of the ranks that were asked for. Lines are told apart by
// a prefix when there are several.
func logReaders(r *rundir.Run, l logOptions, out io.Writer) ([]output.Reader, error) {
	var devices launch.DevicesFile
	if err := r.ReadJSON(rundir.DevicesFile, &devices); err != nil {
		return nil, fmt.Errorf("%w: run %s has not started any rank", orchestrator.ErrUsage, r.ID)
	}
	if l.rank >= len(devices.Devices) {
		return nil, fmt.Errorf("%w: run %s has ranks 0 to %d, and not %d", orchestrator.ErrUsage, r.ID, len(devices.Devices)-1, l.rank)
	}
	to := &lineWriter{out: out}
	var readers []output.Reader
	for _, d := range devices.Devices {
		if l.rank >= 0 && d.Rank != l.rank {
			continue
		}
		path := r.LogPath(d.Rank)
		if !l.follow {
			path = r.FirstLog(d.Rank)
		}
		reader := output.Reader{Path: path, Lines: l.lines, To: to}
		if l.rank < 0 {
			reader.Prefix = fmt.Sprintf("[rank %d|%s] ", d.Rank, d.Name)
		}
		readers = append(readers, reader)
	}
	return readers, nil
}

func readAll(ctx context.Context, readers []output.Reader, follow bool, over func() bool) error {
	if !follow {
		for _, r := range readers {
			if err := r.Print(); err != nil {
				return fmt.Errorf("%w: %w", orchestrator.ErrUsage, err)
			}
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(readers))
	var all sync.WaitGroup
	for i, r := range readers {
		all.Go(func() {
			if errs[i] = r.Follow(ctx, over); errs[i] != nil {
				cancel() // one reader's end is that of all: they write to one place
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("%w: %w", orchestrator.ErrUsage, err)
		}
	}
	return nil
}

// lineWriter lets several readers write whole lines to one place.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}
