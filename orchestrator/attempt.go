package orchestrator

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/output"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/pyshim"
)

// attempt is one start of torchrun: for training, for a profile or for the hardware's
// own numbers.
type attempt struct {
	// Configuration, never modified.
	mode      launch.Mode
	id        string // differs for every attempt
	script    string
	args      []string
	planPath  string
	weighting string
	keepSlurm bool
	grace     time.Duration
	devices   []profiler.Device
	logPath   func(rank int) string
	launchLog string
	// screen says that rank 0 is shown.
	screen bool
	// stuckAfter is how long the ranks may stand still at the least; 0: for ever.
	stuckAfter time.Duration
	// firstStep is how long they may stand still before the first step.
	firstStep time.Duration
	// restart counts the starts of the training before this one; mustResume says that
	// the script has to go on from a checkpoint.
	restart    int
	mustResume bool
	// saves says that the script is known to save checkpoints.
	saves func() bool
	// enough says that the attempt has shown what it was started for; nil: it runs to
	// the script's end.
	enough func() bool

	// Dependencies, never modified.
	deps   Deps
	run    *rundir.Run
	python Python
	entry  pyshim.Entry
	hear   func(events.Event) // called for each event, in one goroutine
	cut    func(error)        // called, by any goroutine, when a rank's log cannot be written

	// State, of the goroutine that runs the attempt.
	temp    string
	server  *events.Server
	ranks   *output.Ranks
	mps     *mps
	tree    *supervise.Tree
	stories *stories
	words   *launcherWords
	watched *watch
}

// ended is what became of an attempt.
type ended struct {
	outcome supervise.Outcome
	stories *stories
	// stopped is the cause when a signal ended the attempt.
	stopped error
	// stuck is the rank that held the others up, when that ended the attempt.
	stuck *Failure
	// failed says that a rank failed before the way down had come to a signal of ours: the
	// checkpoint that was waited for will not come.
	failed bool
}

// do runs the attempt to its end. The context's end stops it gracefully; deps.Force
// cuts that short.
func (a *attempt) do(ctx context.Context) (ended, error) {
	a.stories = newStories(len(a.devices))
	defer a.cleanUp()
	if err := a.prepare(ctx); err != nil {
		return ended{}, err
	}
	if err := a.start(ctx); err != nil {
		return ended{}, err
	}
	end := a.watch(ctx)
	a.finish()
	end.stories = a.stories
	return end, nil
}

// prepare makes everything that must be there before the first worker.
func (a *attempt) prepare(ctx context.Context) error {
	var err error
	if a.temp, err = tempDir(); err != nil {
		return err
	}
	if a.server, err = events.Listen(a.temp, a.deps.Now); err != nil {
		return err
	}
	var stdout, stderr io.Writer
	if a.screen {
		stdout, stderr = a.deps.Stdout, a.deps.Stderr
	}
	a.ranks, err = output.Open(output.Options{
		Dir: a.temp, LogPath: a.logPath, Ranks: len(a.devices), Stdout: stdout, Stderr: stderr, Cut: a.cut,
	})
	if err != nil {
		return err
	}
	if launch.NeedsMPS(a.devices) {
		if a.mps, err = startMPS(ctx, a.deps, a.temp, a.devices); err != nil {
			return err
		}
	}
	a.words, err = openLauncherWords(a.launchLog)
	return err
}

func (a *attempt) start(ctx context.Context) error {
	threads := launch.ThreadsPerRank(launch.ReadCores(os.DirFS("/"), runtime.NumCPU()), len(a.devices))
	if err := launch.Entries(a.devices, threads).Write(a.run.Path(rundir.DevicesFile)); err != nil {
		return err
	}
	w := launch.Workers{
		Mode: a.mode, RunDir: a.run.Dir, Plan: a.planPath, Devices: a.run.Path(rundir.DevicesFile),
		Socket: a.server.Path(), Output: a.temp, Weighting: a.weighting, Threads: threads, KeepSlurm: a.keepSlurm,
		RunID: a.run.ID, Restart: a.restart, MustResume: a.mustResume,
	}
	if a.mps != nil {
		w.MPS = &a.mps.MPS
	}
	argv := launch.Torchrun{
		Python: a.python.Path, Launcher: a.entry.Launcher, Shim: a.entry.Shim, RunID: a.id,
		Ranks: len(a.devices), Script: a.script, Args: a.args,
	}.Argv()
	tree, err := a.deps.Supervisor.Start(ctx, supervise.Command{
		Path: argv[0], Args: argv, Env: launch.Environ(a.deps.Environ, w), Dir: a.deps.Dir,
		Stdout: a.words.line, Stderr: a.words.line,
	})
	if err != nil {
		return fmt.Errorf("start torchrun: %w", err)
	}
	a.tree = tree
	a.hear(events.Event{Time: a.deps.Now(), Kind: events.Launch, Rank: events.NoRank, PID: tree.First().PID,
		Phase: string(a.mode), Message: a.id, WorldSize: len(a.devices)})
	return nil
}

// A failed attempt is ended without further ado when the launcher does not do it.
const (
	// failLimit is how long the other ranks may take after the first failure.
	failLimit = 3 * time.Second
	// launcherLimit is how long the launcher may take when no worker is left.
	launcherLimit = 2 * time.Second
	// stacksLimit is how long ranks that are stuck may take to write their stacks.
	stacksLimit = 2 * time.Second
)

// watch follows the attempt until its tree is gone.
func (a *attempt) watch(ctx context.Context) ended {
	var end ended
	stop := newStopping(a)
	defer stop.release()
	a.watched = newWatch(len(a.devices), a.stuckAfter, a.firstStep, a.deps.Now())
	tick := time.NewTicker(min(time.Second, max(a.stuckAfter/4, 10*time.Millisecond)))
	defer tick.Stop()
	asked, force, signalled := ctx.Done(), a.deps.Force, false
	for {
		select {
		case e := <-a.server.Events():
			a.take(e)
			a.stopWhenEnough()
			if a.fails(e) {
				a.ranks.Hold() // until it is known who failed
				stop.killAfter(failLimit)
				end.failed = end.failed || !signalled
			}
			if stop.failing && e.Kind == events.Gone && a.stories.allGone() {
				stop.killSoon(launcherLimit) // it has only to say who died first
			}
		case <-tick.C:
			a.watched.look(a.deps.Now())
			if end.stuck == nil && asked != nil {
				end.stuck = a.lookForStuck()
				if end.stuck != nil {
					a.server.Broadcast(events.DumpStacks())
					stop.killAfter(stacksLimit)
				}
			}
			stop.remind()
		case <-a.tree.Done():
			end.outcome = a.tree.Outcome()
			return end
		case <-asked:
			asked = nil
			end.stopped = context.Cause(ctx)
			stop.begin(end.stopped)
		case <-stop.ask:
			a.server.Broadcast(events.Stop())
		case <-stop.term:
			signalled = true
			a.tree.Signal(sigterm)
		case <-stop.kill:
			signalled = true
			stop.killNow()
		case <-force:
			force, signalled = nil, true
			stop.killNow()
		case outcome := <-stop.killed:
			end.outcome = outcome
			return end
		}
	}
}

// fails says that an event is the end of a rank that the others will not survive.
func (a *attempt) fails(e events.Event) bool {
	if e.Rank < 0 || e.Rank >= len(a.stories.ranks) {
		return false
	}
	exit := a.stories.ranks[e.Rank].exit
	switch e.Kind {
	case events.Error:
		return true
	case events.Exit:
		return e.Code != nil && *e.Code != 0
	case events.Gone:
		return exit == nil
	}
	return false
}

// say prints a line of our own.
func (a *attempt) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.deps.Stderr, format+"\n", args...)
}

// lookForStuck is the rank that holds the others up, if one does.
func (a *attempt) lookForStuck() *Failure {
	if a.stuckAfter <= 0 {
		return nil
	}
	if f, ok := a.watched.stuck(a.deps.Now()); ok {
		return &f
	}
	return nil
}

// stopWhenEnough asks the workers, once, to stop at the end of their step.
func (a *attempt) stopWhenEnough() {
	if a.enough != nil && a.enough() {
		a.enough = nil
		a.server.Broadcast(events.Stop())
	}
}

func (a *attempt) take(e events.Event) {
	a.stories.add(e)
	if a.watched != nil {
		a.watched.take(e, a.deps.Now())
	}
	if e.Kind != events.Heartbeat {
		a.hear(e)
	}
}

// finishLimit is how long the last events may take when all workers have ended.
const finishLimit = 3 * time.Second

// finish takes what is still on its way.
func (a *attempt) finish() {
	go a.server.Finish(finishLimit)
	for e := range a.server.Events() {
		a.take(e)
	}
	a.ranks.Close()
	if lines, err := a.ranks.Missing(); lines > 0 {
		a.say("note: lines that the ranks printed and that are not in their logs: %d (%v)", lines, err)
	}
}

// cleanUp ends what is left, also when the attempt did not get far.
func (a *attempt) cleanUp() {
	if a.tree != nil {
		select {
		case <-a.tree.Done():
		default:
			a.tree.Kill()
		}
	}
	if a.mps != nil {
		a.mps.stop()
	}
	if a.server != nil && a.tree == nil {
		a.server.Close()
	}
	if a.ranks != nil && a.tree == nil {
		a.ranks.Close()
	}
	if a.words != nil {
		a.words.close()
	}
	if a.temp != "" {
		_ = os.RemoveAll(a.temp)
	}
}
