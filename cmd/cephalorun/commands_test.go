package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/solver"
)

func TestPlanPrintsThePlanAndNothingElse(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, nil, "plan", "--profile", plannerCase, "--global-batch", "128", "--json")
	plan, err := solver.ParsePlan([]byte(b.out.String()))
	if err != nil || plan.GlobalBatch != 128 || b.err.String() != "" {
		t.Errorf("%v; standard error %q", err, b.err.String())
	}
	b.mustRun(exitDone, []string{"limited by", "predicted:"}, "plan", "--profile", plannerCase, "--global-batch", "128")
}

func TestPlannerCasesThroughTheCommand(t *testing.T) {
	data, err := os.ReadFile("../../testdata/planner-cases/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Profile     string  `json:"profile"`
		GlobalBatch int     `json:"global_batch"`
		OptimumMs   float64 `json:"optimum_ms"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		var wrapped struct{ Cases json.RawMessage }
		if json.Unmarshal(data, &wrapped) != nil || json.Unmarshal(wrapped.Cases, &cases) != nil {
			t.Fatal(err)
		}
	}
	for _, c := range cases {
		t.Run(c.Profile, func(t *testing.T) {
			b := newBench(t)
			b.mustRun(exitDone, nil, "plan", "--json", "--global-batch", jsonNumber(c.GlobalBatch), "--profile", filepath.Join("../../testdata/planner-cases", c.Profile))
			plan, err := solver.ParsePlan([]byte(b.out.String()))
			if err != nil || math.Abs(plan.Predicted.IterationMs/c.OptimumMs-1) > 1e-3 {
				t.Errorf("%.3f ms, optimum %.3f, %v", plan.Predicted.IterationMs, c.OptimumMs, err)
			}
		})
	}
}

func jsonNumber(n int) string { data, _ := json.Marshal(n); return string(data) }

func TestRunsStatusAndLogs(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, nil, "--devices", b.devices(), b.file("train.py", goodScript))
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"done", "train.py", "12"}, "runs")
	b.mustRun(exitDone, []string{": done", "steps: 12"}, "status")
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"[rank 0|fast] hello", "[rank 1|slow] hello"}, "logs")
	b.out.content.Reset()
	b.mustRun(exitDone, nil, "logs", "-f", "--rank", "1")
	if got := strings.TrimSpace(b.out.String()); got != "hello" {
		t.Errorf("got %q", got)
	}
	b.mustRun(exitUsage, []string{"ranks 0 to 1, and not 5"}, "logs", "--rank", "5")
	b.mustRun(exitUsage, []string{"--rank is -5; it must be at least 0, or -1 for all ranks"}, "logs", "--rank", "-5")
	b.mustRun(exitUsage, []string{"-n is -7 lines; it must be at least 0, or -1 for all"}, "logs", "-n", "-7")
	b.mustRun(exitDone, nil, "logs", "-n", "-1", "--rank", "-1")
	b.mustRun(exitUsage, []string{"is not running"}, "stop")
}

func TestStopEndsARunOfAnotherProcess(t *testing.T) {
	b := newBench(t)
	stopper := newBench(t)
	stopper.dir = b.dir
	stopped := make(chan int, 1)
	// The run's owner is this process: the signal comes here, and goes to the run as
	// a process of its own would pass it on.
	b.app.signals = listenForSignals
	b.out.on("waiting", func() { stopped <- stopper.run("stop") })
	b.mustRun(exitSignal+int(unix.SIGTERM), nil, "--devices", b.devices(), b.file("train.py", "measure float32\nsteps 1\nwait\n"))
	if got := <-stopped; got != exitDone {
		t.Errorf("exit code %d: %s", got, stopper.err)
	}
}

func TestDevices(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"fast", "slow (slowed down 3x)", "1.0 GiB"}, "devices", "--devices", b.devices())
	b.out.content.Reset()
	b.mustRun(exitDone, nil, "devices", "--devices", "../../testdata/fleets/mixed-four.json", "--json")
	var list struct{ Devices []json.RawMessage }
	if err := json.Unmarshal([]byte(b.out.String()), &list); err != nil || len(list.Devices) == 0 {
		t.Errorf("%d devices, %v", len(list.Devices), err)
	}
}

func TestProfileOfAScriptAndOfTheHardware(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"model Tiny", "Block", "profile.json"}, "profile", "--devices", b.devices(), b.file("train.py", goodScript))
	b.out.content.Reset()
	b.mustRun(exitDone, nil, "profile", "--json", "--devices", b.devices(), b.file("train.py", goodScript))
	var p struct{ Version int }
	if err := json.Unmarshal([]byte(b.out.String()), &p); err != nil || p.Version != 1 {
		t.Errorf("version %d, %v", p.Version, err)
	}
	b.mustRun(exitDone, []string{"fp32 TFLOP/s", "1.5", "all_gather", "2.5 ms"}, "profile", "--devices", b.devices())
}

func TestDoctor(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"python:", "PyTorch 2.15.0", "devices:", "shared memory:"}, "doctor")
	b.mustRun(exitMachine, []string{"no Python at /none"}, "doctor", "--python", "/none")
}

func TestVersionAndCompletion(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"Python package sha256:"}, "version")
	b.mustRun(exitDone, []string{"cephalorun"}, "completion", "bash")
}

func TestEveryCommandHasHelpWithExitCodes(t *testing.T) {
	root, _ := newRoot(newBench(t).app)
	for _, c := range root.Commands() {
		if c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		if c.Short == "" || c.Example == "" || !strings.Contains(c.Long, "Exit codes:") {
			t.Errorf("%s: help without example or exit codes", c.Name())
		}
	}
}
