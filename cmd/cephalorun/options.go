package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/solver"
)

// options are the flags of all commands.
type options struct {
	// For every command.
	stateDir string
	json     bool
	noColor  bool
	// For those that look at devices.
	devices string
	python  string
	// For those that plan.
	globalBatch batchSize
	profile     string
	plan        string
	even        bool
	batches     batchList
	useAll      bool
	remeasure   bool
	// For those that train.
	compareEven  int
	weighting    weighting
	stopGrace    time.Duration
	keepSlurm    bool
	emulatedBF16 bool
	maxRestarts  int
	resumeArgs   []string
	stuckAfter   time.Duration
	keepSaved    int
	replanAfter  int
}

const (
	// defaultGrace is longer than the 30 s that torchrun gives its workers.
	defaultGrace = 40 * time.Second
	// defaultRestarts is how often a run is brought back without progress.
	defaultRestarts = 3
	// defaultReplan is for how many steps a rank must be off its part of the plan.
	defaultReplan = 200
	// defaultStuck is how long ranks may wait for one that does not come.
	defaultStuck = time.Minute
)

func (o *options) addGlobal(f *pflag.FlagSet, environ []string) {
	f.StringVar(&o.stateDir, "state-dir", rundir.DefaultState, "folder for runs and profiles")
	f.BoolVar(&o.json, "json", false, "print JSON on standard output, and errors as JSON")
	f.BoolVar(&o.noColor, "no-color", hasEnv(environ, "NO_COLOR"), "no colours (also NO_COLOR)")
}

func (o *options) addDevices(f *pflag.FlagSet) {
	f.StringVar(&o.devices, "devices", "", "a devices file (YAML), or indexes and UUIDs such as 0,GPU-8f,cpu (default: all)")
}

func (o *options) addPython(f *pflag.FlagSet) {
	f.StringVar(&o.python, "python", "", "the Python to use (also CEPHALO_PYTHON; default: python3 on the PATH, then the one of set-up)")
}

func (o *options) addPlanning(f *pflag.FlagSet) {
	o.addDevices(f)
	o.addPython(f)
	f.Var(&o.globalBatch, "global-batch", fmt.Sprintf("samples of one step on all devices together, at most %d, or auto (default: what the script has)", solver.MostSamples))
	f.Var(&o.batches, "batches", "every rank's batch by hand, such as 15,2,2,2")
	f.BoolVar(&o.useAll, "use-all", false, "give every device at least one sample, also where that is slower")
	f.StringVar(&o.profile, "profile", "", "use this profile and do not measure")
	f.BoolVar(&o.even, "even", false, "split evenly, for comparison")
	f.BoolVar(&o.remeasure, "remeasure", false, "measure again, also when there is a profile")
	f.BoolVar(&o.emulatedBF16, "allow-emulated-bf16", false, "let bf16 run where the hardware has none")
	o.addStop(f)
}

func (o *options) addStop(f *pflag.FlagSet) {
	f.DurationVar(&o.stopGrace, "stop-grace", defaultGrace, "how long a run may take to stop after SIGTERM")
	f.BoolVar(&o.keepSlurm, "keep-slurm-env", false, "show SLURM_* to the workers")
}

func (o *options) addRun(f *pflag.FlagSet) {
	o.weighting = "samples"
	o.addPlanning(f)
	f.StringVar(&o.plan, "plan", "", "use this plan and do not solve for one")
	f.IntVar(&o.compareEven, "compare-even", 0, "run this many of the script's first steps under the even split before, and report what the plan gains")
	o.addRestarts(f)
	f.Var(&o.weighting, "weighting", "what the script's loss is: samples (a mean over them), tokens (a cross entropy's mean over targets that are not ignored) or mean (already divided by a global count)")
}

func (o *options) addRestarts(f *pflag.FlagSet) {
	f.IntVar(&o.maxRestarts, "max-restarts", defaultRestarts, "how often the training is brought back after a failure without having gone further meanwhile")
	f.StringArrayVar(&o.resumeArgs, "resume-args", nil, "arguments, separated by blanks, that the script gets after its own when it is to go on from its newest checkpoint")
	f.IntVar(&o.replanAfter, "replan-after", defaultReplan, "after how many steps in which a rank is slower or faster than planned to look for a better plan, used from the next checkpoint on (0: never)")
	f.IntVar(&o.keepSaved, "keep-checkpoints", 0, "how many whole checkpoints of the script to keep, the newest ones (0: all)")
	f.DurationVar(&o.stuckAfter, "stuck-after", defaultStuck, "how long ranks may wait for one that does not come (at least; 10 median steps if that is more; 0: for ever)")
}

// spec is what the flags ask for.
func (o *options) spec(script string, args []string) orchestrator.Spec {
	strategy := orchestrator.Best
	if o.even {
		strategy = orchestrator.Even
	}
	weight := string(o.weighting)
	if weight == "" {
		weight = "samples"
	}
	return orchestrator.Spec{
		Wishes: orchestrator.Wishes{Auto: o.globalBatch.auto(), Batches: o.batches, UseAll: o.useAll},
		Script: script, Args: args, GlobalBatch: max(0, int(o.globalBatch)), Python: o.python, StateDir: o.stateDir,
		Devices: o.devices, ProfileFile: o.profile, PlanFile: o.plan, Strategy: strategy, CompareEven: o.compareEven, Weighting: weight,
		StopGrace: o.stopGrace, KeepSlurm: o.keepSlurm, AllowEmulatedBF16: o.emulatedBF16, Remeasure: o.remeasure,
		MaxRestarts: o.maxRestarts, ResumeArgs: words(o.resumeArgs), StuckAfter: o.stuckAfter, KeepCheckpoints: o.keepSaved, ReplanAfter: o.replanAfter,
	}
}

// words cuts each value at its blanks.
func words(values []string) []string {
	var all []string
	for _, v := range values {
		all = append(all, strings.Fields(v)...)
	}
	return all
}

// batchSize is a number of samples; 0 is not given, below it is auto.
type batchSize int

var _ pflag.Value = (*batchSize)(nil)

// String implements pflag.Value.
func (b *batchSize) String() string {
	if *b == 0 {
		return ""
	}
	if b.auto() {
		return "auto"
	}
	return strconv.Itoa(int(*b))
}

// Set implements pflag.Value.
func (b *batchSize) Set(text string) error {
	if text == "auto" {
		*b = -1
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > solver.MostSamples {
		return fmt.Errorf("it must be a whole number from 1 to %d, or auto", solver.MostSamples)
	}
	*b = batchSize(n)
	return nil
}

func (b batchSize) auto() bool { return b < 0 }

// Type implements pflag.Value.
func (b *batchSize) Type() string { return "samples" }

// batchList is the ranks' batches; nil is not given.
type batchList []int

var _ pflag.Value = (*batchList)(nil)

// String implements pflag.Value.
func (b *batchList) String() string {
	words := make([]string, len(*b))
	for i, n := range *b {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// Set implements pflag.Value.
func (b *batchList) Set(text string) error {
	var list batchList
	sum := 0
	for i, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 0 || n > solver.MostSamples {
			return fmt.Errorf("batch %d of it is %q, and must be a whole number from 0 to %d", i, word, solver.MostSamples)
		}
		list, sum = append(list, n), sum+n
	}
	if sum == 0 {
		return errors.New("all batches are 0")
	}
	*b = list
	return nil
}

// Type implements pflag.Value.
func (b *batchList) Type() string { return "samples,..." }

// weighting is how the ranks' gradients are weighted.
type weighting string

var _ pflag.Value = (*weighting)(nil)

// String implements pflag.Value.
func (w *weighting) String() string { return string(*w) }

// Set implements pflag.Value.
func (w *weighting) Set(text string) error {
	if text != "samples" && text != "tokens" && text != "mean" {
		return errors.New("it must be samples, tokens or mean")
	}
	*w = weighting(text)
	return nil
}

// Type implements pflag.Value.
func (w *weighting) Type() string { return "samples|tokens|mean" }

func hasEnv(environ []string, name string) bool {
	for _, entry := range environ {
		if n, v, _ := strings.Cut(entry, "="); n == name && v != "" {
			return true
		}
	}
	return false
}
