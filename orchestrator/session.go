package orchestrator

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/hostwatch"
	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/pyshim"
	"github.com/cephalorun/cephalorun/solver"
)

// session is one run with all that it found out.
type session struct {
	// Configuration and dependencies, never modified.
	spec Spec
	deps Deps

	// State, of the goroutine that runs it.
	store      rundir.Store
	run        *rundir.Run
	journal    *events.Journal
	screen     *screen
	state      State
	python     Python
	devices    Devices
	entry      pyshim.Entry
	profile    profiler.Profile
	plan       solver.Plan
	curve      []solver.BatchPoint // what the global batch was chosen from
	tracker    *tracker
	correction profiler.Correction // zero without
	even       *show.EvenSplit     // nil unless compared
	began      time.Time
	written    time.Time // of status.json
	// taken says that the run was begun by an earlier supervisor.
	taken bool
	// restarts is what the run has been through; resumedAt the step that the newest
	// attempt began after; all the devices that the run was begun with.
	restarts  *restarts
	resumedAt int
	// notLoaded is the checkpoint that the newest attempt could not load, damaged what is
	// wrong with it; empty without.
	notLoaded, damaged string
	// announced is the checkpoint that was said to be the newest whole one, loaded are those
	// that the script has loaded in the newest attempt.
	announced string
	loaded    []string
	// sharedWith are folders that another run saves into too, which was said.
	sharedWith []string
	all        []profiler.Device
	lost       []int // ranks whose devices are gone since the last attempt
	canSave    bool  // the script registered a function that saves
	allDone    bool  // the script found nothing left to train
	// whole is the profile of all of them, banned those that failed by their own word.
	whole      profiler.Profile
	banned     []string
	comeback   *comeback
	host       *hostwatch.Watch
	stragglers *stragglers
	// drift leads to a better plan, which is looked for while solving is not nil; drifted
	// is what was learnt of devices in this run, by UUID. Nothing is decided before
	// the step restUntil; replanned is how often the plan was changed for it.
	drift     *drift
	solving   <-chan *betterPlan
	better    *betterPlan
	drifted   map[string]float64
	restUntil int
	replanned int
	unkept    unkept
	removing  <-chan []removed // nil unless checkpoints are being removed
	// launched is when the newest attempt began, and firstStep how long the first one
	// took to its first step; 0 before that.
	launched  time.Time
	firstStep time.Duration
}

// Status is status.json: where a run stands.
type Status struct {
	State   State      `json:"state"`
	Updated time.Time  `json:"updated"`
	Step    *show.Step `json:"last_step,omitempty"`
	Failure *Failure   `json:"failure,omitempty"`
	Message string     `json:"message,omitempty"`
}

// open checks what was asked for and makes the run's folder.
func open(ctx context.Context, spec Spec, deps Deps) (*session, error) {
	s, err := prepare(ctx, spec, deps)
	if err != nil {
		return nil, err
	}
	if s.store, err = rundir.Open(spec.StateDir); err != nil {
		return nil, err
	}
	if err := s.makeFolder(); err != nil {
		if s.run != nil {
			s.run.Unlock()
		}
		return nil, err
	}
	return s, nil
}

// prepare checks what was asked for, and finds the Python and the devices.
func prepare(ctx context.Context, spec Spec, deps Deps) (*session, error) {
	s := &session{spec: spec, deps: deps, state: Preparing, began: deps.Now(), restarts: &restarts{},
		screen: &screen{out: deps.Stderr, width: deps.Width, now: deps.Now}}
	if err := s.check(); err != nil {
		return nil, err
	}
	var err error
	finder := PythonFinder{Flag: spec.Python, Environ: deps.Environ}
	if s.python, err = finder.Find(ctx); err != nil {
		return nil, err
	}
	if s.devices, err = s.find(ctx); err != nil {
		return nil, err
	}
	return s, s.readGiven()
}

// check refuses what cannot work before anything is started.
func (s *session) check() error {
	if s.spec.GlobalBatch < 0 {
		return usage("--global-batch is %d; it must be at least 1", s.spec.GlobalBatch)
	}
	if s.spec.CompareEven < 0 || s.spec.CompareEven > 0 && s.spec.CompareEven <= warmUp {
		return usage("--compare-even is %d; it must be at least %d: the first %d steps are warm-up and do not count", s.spec.CompareEven, warmUp+1, warmUp)
	}
	if s.spec.MaxRestarts < 0 {
		return usage("--max-restarts is %d; it must be at least 0", s.spec.MaxRestarts)
	}
	if s.spec.ReplanAfter < 0 {
		return usage("--replan-after is %d steps; it must be at least 1, or 0 for never", s.spec.ReplanAfter)
	}
	if s.spec.KeepCheckpoints < 0 {
		return usage("--keep-checkpoints is %d; it must be at least 1, or 0 for all", s.spec.KeepCheckpoints)
	}
	if s.spec.StuckAfter < 0 {
		return usage("--stuck-after is %s; it must be longer than 0, or 0 to wait for ever", s.spec.StuckAfter)
	}
	if s.spec.StopGrace < 0 {
		return usage("--stop-grace is %s; it must be at least 0", s.spec.StopGrace)
	}
	if s.spec.Script == "" {
		return nil
	}
	if err := checkEnvironment(s.deps.Environ); err != nil {
		return err
	}
	if err := checkSlurm(s.deps.Environ, s.spec.KeepSlurm); err != nil {
		return err
	}
	return checkScript(s.spec.Script)
}

func (s *session) find(ctx context.Context) (Devices, error) {
	return DeviceFinder{Spec: s.spec.Devices, Environ: s.deps.Environ, GPUs: s.deps.GPUs, CPU: s.deps.CPU}.Find(ctx)
}

func (s *session) makeFolder() error {
	name := s.spec.Script
	if name == "" {
		name = "hardware"
	}
	var err error
	if s.run, err = s.store.New(name, s.deps.Now()); err != nil {
		return err
	}
	if err := s.saveSpec(); err != nil {
		return err
	}
	return s.fillFolder()
}

// fillFolder writes what a run's folder holds before anything is started.
func (s *session) fillFolder() error {
	var err error
	owner := rundir.Owner{PID: os.Getpid(), Started: s.began, Script: s.spec.Script, Args: s.spec.Args}
	owner.Host, _ = os.Hostname() // for reading only
	owner.StartTicks = ownStart()
	if before, err := s.run.Owner(); s.taken && err == nil {
		// The run is the same, as it was asked for then; only who runs it is new.
		owner.Script, owner.Args, owner.Started, owner.TakenUp = before.Script, before.Args, before.Started, s.began
	}
	if err := s.run.SetOwner(owner); err != nil {
		return err
	}
	if err := s.run.MakeFolders(); err != nil {
		return err
	}
	if err := s.run.Reserve(); err != nil {
		return fmt.Errorf("%w: %w", rundir.ErrNotWritable, err)
	}
	if s.entry, err = pyshim.Prepare(s.run.Dir, s.run.ID); err != nil {
		return err
	}
	s.journal, err = events.OpenJournal(s.run.Path(rundir.EventsFile), s.deps.Events)
	return err
}

// close gives the run up.
func (s *session) close() {
	s.collectRemoved(removalLimit)
	s.rotate() // what was saved while others were being removed
	s.collectRemoved(removalLimit)
	if s.journal != nil {
		_ = s.journal.Close()
	}
	s.run.Unlock()
}

// enter goes to another state and tells.
func (s *session) enter(to State, message string, failure *Failure) error {
	if err := s.state.next(to); err != nil {
		return err
	}
	s.state = to
	s.note(events.Event{Kind: events.State, Phase: string(to), Message: message})
	return s.writeStatus(Status{State: to, Step: s.lastStep(), Message: message, Failure: failure})
}

// lastStep is the last one that all ranks reported; nil without one.
func (s *session) lastStep() *show.Step {
	if s.tracker == nil || len(s.tracker.done) == 0 {
		return nil
	}
	return &s.tracker.done[len(s.tracker.done)-1]
}

func (s *session) writeStatus(status Status) error {
	status.Updated = s.deps.Now()
	s.written = status.Updated
	if status.State.Over() {
		return s.run.WriteJSONAtLast(rundir.StatusFile, status)
	}
	return rundir.WriteJSON(s.run.Path(rundir.StatusFile), status)
}

// note keeps an event of our own. A journal that cannot be written costs the event
// and not the run; it is said once.
func (s *session) note(e events.Event) {
	e.Time, e.Rank = s.deps.Now(), events.NoRank
	s.keep(e)
}

func (s *session) keep(e events.Event) {
	s.unkept.say(s.screen, s.journal.Write(e))
}

// newAttempt prepares a start of torchrun.
func (s *session) newAttempt(mode launch.Mode, prefix string) *attempt {
	s.restarts.Attempts++
	return &attempt{
		mode: mode, id: fmt.Sprintf("%s-%d", s.run.ID, s.restarts.Attempts),
		script: s.spec.Script, args: s.spec.Args, planPath: s.run.Path(rundir.PlanFile),
		weighting: s.spec.Weighting, keepSlurm: s.spec.KeepSlurm, grace: s.spec.StopGrace,
		devices: s.devices.Chosen, stuckAfter: s.spec.StuckAfter, firstStep: firstStepLimit,
		logPath:   func(rank int) string { return s.run.Path(rundir.LogsDir, fmt.Sprintf("%srank-%d.log", prefix, rank)) },
		launchLog: s.run.Path(rundir.LogsDir, prefix+"launcher.log"),
		deps:      s.deps, run: s.run, python: s.python, entry: s.entry, hear: s.keep,
		cut: func(err error) { s.unkept.say(s.screen, err) },
	}
}

// names are the devices' names by rank.
func (s *session) names() []string {
	var names []string
	for _, d := range s.devices.Chosen {
		names = append(names, d.Name)
	}
	return names
}
