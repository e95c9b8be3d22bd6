package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

const goodScript = "measure float32\nprint hello\nsteps 12\n"

func TestARunFromStartToEnd(t *testing.T) {
	b := newBench(t)
	script := b.file("train.py", goodScript)
	b.mustRun(exitDone, []string{
		"profile: measuring", "plan: cephalo, global batch 16", "8 of the script's loader on 2 ranks",
		"done after 12 steps", "loss 4.9000 to 3.8000", "step: predicted",
	}, "--devices", b.devices(), script, "--lr", "0.1", "two words")
	if got := b.out.String(); got != "hello --lr|0.1|two words\n" {
		t.Errorf("standard output has more than the script's words: %q", got)
	}
	run := filepath.Join(b.dir, "state", "runs", "latest")
	for _, name := range []string{"plan.json", "profile.json", "devices.json", "shim.py", "events.jsonl", "report.json", "report.html",
		"status.json", "logs/rank-0.log", "logs/rank-1.log", "pyshim/cephalo/worker.py"} {
		if info, err := os.Stat(filepath.Join(run, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(run, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report show.Report
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	if report.MeasuredStepMs != 10 || report.Steps != 12 || report.Ranks[0].Batch <= report.Ranks[1].Batch {
		t.Errorf("the slow device should have less work: %+v", report)
	}
	// The second run finds the profile.
	b.mustRun(exitDone, []string{"profile: measured before"}, "--devices", b.devices(), script, "--lr", "0.1", "two words")
	b.mustRun(exitDone, []string{"plan: even"}, "--even", "--devices", b.devices(), script, "--lr", "0.1", "two words")
}

func TestTheNextPlanKnowsWhatTheLastRunMeasured(t *testing.T) {
	b := newBench(t)
	script := b.file("train.py", "measure float32\nsteps 30 100\n")
	report := func() show.Report {
		t.Helper()
		b.mustRun(exitDone, []string{"done after 30 steps"}, "--devices", b.devices(), script)
		data, err := os.ReadFile(filepath.Join(b.dir, "state", "runs", "latest", "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		var r show.Report
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := report()
	if off := first.Off(); off > -10 && off < 10 {
		t.Fatalf("the first prediction should be wrong: %v for %v ms", first.PredictedStepMs, first.MeasuredStepMs)
	}
	for range 2 { // corrections do not add up
		if r := report(); r.Off() > 0.1 || r.Off() < -0.1 || r.Ranks[0].Batch != first.Ranks[0].Batch {
			t.Errorf("predicted %v, measured %v, batch %d", r.PredictedStepMs, r.MeasuredStepMs, r.Ranks[0].Batch)
		}
	}
	b.mustRun(exitDone, []string{"profile: times are scaled by"}, "plan", "--devices", b.devices(), script)
	b.mustRun(exitDone, []string{"profile: measuring"}, "plan", "--remeasure", "--devices", b.devices(), script)
}

func TestUnitsThatRunWholeAreNamed(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"note: Block runs on the whole batch of its device at once: it is called 2 times in one forward"},
		"--devices", b.devices(), b.file("train.py", "measure-whole float32\nsteps 3\n"))
}

func TestTheEvenSplitIsMeasuredToo(t *testing.T) {
	b := newBench(t)
	script := b.file("train.py", goodScript)
	b.mustRun(exitDone, []string{
		"even split: 5 steps, to compare with", "done after 12 steps", "measured 10.0 ms; median of 10 steps; the plan is 1.00 times as fast",
	}, "--compare-even", "5", "--devices", b.devices(), script)
	run := filepath.Join(b.dir, "state", "runs", "latest")
	data, err := os.ReadFile(filepath.Join(run, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report show.Report
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	if report.Even == nil || report.Even.MeasuredStepMs != 10 || report.Even.PredictedStepMs <= report.PredictedStepMs {
		t.Errorf("even split: %+v, plan predicted %v", report.Even, report.PredictedStepMs)
	}
	journal, err := os.ReadFile(filepath.Join(run, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(journal), `"kind":"step"`); n != 24 {
		t.Errorf("%d steps in the journal, want those of the training alone: 24", n)
	}
	b.mustRun(exitUsage, []string{"it must be at least 3"}, "--compare-even", "2", "--devices", b.devices(), script)
}

// The even split may be impossible where the plan is not; the run goes on.
func TestAnEvenSplitThatFailsIsReported(t *testing.T) {
	b := newBench(t)
	script := b.file("train.py", "measure float32\nfail-even 1 OutOfMemoryError no room\nsteps 12\n")
	b.mustRun(exitDone, []string{"even split: rank 1 on cpu device slow failed before its first step: OutOfMemoryError: no room", "done after 12 steps"},
		"--compare-even", "5", "--devices", b.devices(), script)
}

func TestJSONEventsOnStandardOutput(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, nil, "--json", "--devices", b.devices(), b.file("train.py", goodScript))
	kinds := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(b.out.String()), "\n") {
		var e struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("not JSON: %q", line)
		}
		kinds[e.Kind]++
	}
	if kinds["step"] != 24 || kinds["launch"] != 2 || kinds["plan"] != 1 || kinds["end"] != 1 {
		t.Errorf("got %v", kinds)
	}
	if !strings.Contains(b.err.String(), "hello") {
		t.Error("the script's words are lost")
	}
}

func TestFailures(t *testing.T) {
	cases := map[string]struct {
		script string
		says   []string
	}{
		"the script raises before its first step": {"measure float32\nfail 1 ValueError boom\n",
			[]string{"rank 1 on cpu device slow failed before its first step: ValueError: boom (train.py:3 in main)",
				"| Traceback: ValueError", "rank 0 was stopped because of rank 1", "logs/rank-1.log"}},
		"the script raises while it is measured": {"fail 0 FileNotFoundError no data\n",
			[]string{"FileNotFoundError: no data", "profile-rank-0.log"}},
		"a rank is killed": {"measure float32\nsteps 3\nkill 1\n",
			[]string{"rank 1 on cpu device slow failed after step 3: the process was killed or crashed"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.mustRun(exitScript, c.says, "--devices", b.devices(), b.file("train.py", c.script))
			last := strings.Split(strings.TrimSpace(b.err.String()), "\n")
			if !strings.HasPrefix(last[len(last)-1], "cephalorun: rank ") {
				t.Errorf("the last line is not the cause: %q", last[len(last)-1])
			}
		})
	}
}

func TestStopping(t *testing.T) {
	for name, c := range map[string]struct {
		signal unix.Signal
		want   int
	}{"Ctrl-C": {unix.SIGINT, 130}, "SIGTERM": {unix.SIGTERM, 143}, "SIGUSR1 of a scheduler": {unix.SIGUSR1, 138}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.err.on("step 1  loss", func() { b.signal(c.signal) }) // every rank is there then
			began := time.Now()
			b.mustRun(c.want, []string{"stopped after 2 steps"}, "--devices", b.devices(), b.file("train.py", "measure float32\nsteps 2\nwait\n"))
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
	t.Run("twice, and the script does not listen", func(t *testing.T) {
		b := newBench(t)
		b.out.on("deaf", func() { b.signal(unix.SIGINT); b.signal(unix.SIGINT) })
		began := time.Now()
		b.mustRun(130, nil, "--devices", b.devices(), b.file("train.py", "measure float32\nprint deaf\nkill 9\n"))
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("took %s", took)
		}
	})
	t.Run("while the model is measured", func(t *testing.T) {
		b := newBench(t)
		b.err.on("measuring", func() { b.signal(unix.SIGINT) })
		b.mustRun(130, []string{"stopped by SIGINT"}, "--devices", b.devices(), b.file("train.py", "wait\n"))
	})
}

func TestADeviceThatComputesWronglyIsTheMachinesFault(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitMachine, []string{"rank 1 on cpu device slow failed before its first step: UnsoundDevice: wrong products"},
		"--devices", b.devices(), b.file("train.py", "fail 1 UnsoundDevice wrong products\n"))
}

// User case 73: odd names of folders and scripts, and odd arguments.
func TestUserCase73OddPathsEndToEnd(t *testing.T) {
	b := newBench(t)
	b.dir = filepath.Join(b.dir, `mein Modell (v2) $x 'é`)
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.mustRun(exitDone, []string{"hello a b|$HOME|'\n"}, "--devices", b.devices(), b.file("tr ain'é.py", goodScript), "a b", "$HOME", "'")
}

func TestFlagsAfterTheScriptAreTheScripts(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"hello --global-batch|x|--help|plan"}, "--devices", b.devices(), b.file("train.py", goodScript), "--global-batch", "x", "--help", "plan")
}

// User case 38: two jobs that start in the same moment both run.
func TestUserCase38TwoRunsAtOnce(t *testing.T) {
	codes := make(chan int, 2)
	for range 2 {
		b := newBench(t)
		go func() { codes <- b.run("--devices", b.devices(), b.file("train.py", goodScript)) }()
	}
	for range 2 {
		if got := <-codes; got != exitDone {
			t.Errorf("exit code %d", got)
		}
	}
}
