package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/fleet"
)

const plannerCase = "../../testdata/planner-cases/paper-bert_large-float32.profile.json"

func TestBadInput(t *testing.T) {
	measured, err := os.ReadFile(plannerCase)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		prepare func(b *bench)
		args    func(b *bench) []string
		code    int
		says    string
	}{
		"no such script":           {nil, func(b *bench) []string { return []string{filepath.Join(b.dir, "none.py")} }, exitUsage, "there is no script"},
		"the script is a folder":   {nil, func(b *bench) []string { return []string{b.dir} }, exitUsage, "is a folder"},
		"an empty script name":     {nil, func(*bench) []string { return []string{""} }, exitUsage, "the first argument is empty"},
		"an empty name to profile": {nil, func(*bench) []string { return []string{"profile", ""} }, exitUsage, "the first argument is empty"},
		"an empty name of a run":   {nil, func(*bench) []string { return []string{"stop", ""} }, exitUsage, "the first argument is empty"},
		"an empty flag":            {nil, func(*bench) []string { return []string{"--plan=", "train.py"} }, exitUsage, "--plan is empty"},
		"an empty state folder":    {nil, func(*bench) []string { return []string{"status", "--state-dir="} }, exitUsage, "--state-dir is empty"},
		"the script is a device":   {nil, func(*bench) []string { return []string{os.DevNull} }, exitUsage, "is no file that every rank could read"},
		"batches for other devices": {nil, func(b *bench) []string {
			return []string{"--batches", "1,2,3", "--devices", b.devices(), b.file("train.py", goodScript)}
		}, exitUsage, "--batches gives 3 batches, and there are 2 devices"},
		"batches beside another global batch": {nil, func(b *bench) []string {
			return []string{"--batches", "1,2", "--global-batch", "4", "--devices", b.devices(), b.file("train.py", goodScript)}
		}, exitUsage, "--batches sum to 3"},
		"a script that is a pipe": {func(b *bench) {
			if err := unix.Mkfifo(filepath.Join(b.dir, "train.py"), 0o600); err != nil {
				b.t.Fatal(err)
			}
		}, func(b *bench) []string { return []string{filepath.Join(b.dir, "train.py")} }, exitUsage, "is no file that every rank could read"},
		"a devices file that is a pipe": {func(b *bench) {
			if err := unix.Mkfifo(filepath.Join(b.dir, "devices.yaml"), 0o600); err != nil {
				b.t.Fatal(err)
			}
		}, func(b *bench) []string {
			return []string{"--devices", filepath.Join(b.dir, "devices.yaml"), b.file("train.py", goodScript)}
		}, exitUsage, "devices.yaml is a pipe, and must be a file"},
		"a profile that is a folder":     {nil, func(b *bench) []string { return []string{"plan", "--profile", b.dir, "--global-batch", "8"} }, exitUsage, "is a folder, and must be a file"},
		"a plan that is a device":        {nil, func(b *bench) []string { return []string{"--plan", "/dev/zero", b.file("train.py", goodScript)} }, exitUsage, "/dev/zero is a device"},
		"a cluster file that never ends": {nil, func(*bench) []string { return simulateFiles("/dev/zero", "../../examples/models/gpt-2.7b.yaml") }, exitUsage, "/dev/zero is a device"},
		"a model file of an absurd size": {func(b *bench) { b.huge("model.yaml") }, func(b *bench) []string {
			return simulateFiles("../../examples/clusters/paper-a.yaml", filepath.Join(b.dir, "model.yaml"))
		}, exitUsage, "has more than 1048576 bytes"},
		"a profile file of an absurd size": {func(b *bench) { b.huge("p.json") }, func(b *bench) []string {
			return []string{"plan", "--profile", filepath.Join(b.dir, "p.json"), "--global-batch", "8"}
		}, exitUsage, "bytes, which no such file has"},
		"an unknown flag": {nil, func(b *bench) []string { return []string{"--fast", "train.py"} }, exitUsage, "unknown flag: --fast"},
		"Python without torch": {func(b *bench) { b.app.environ = append(b.app.environ, fakeTorch+"=") },
			func(b *bench) []string { return []string{b.file("train.py", goodScript)} }, exitMachine, "has no PyTorch"},
		"torch too old": {func(b *bench) { b.app.environ = append(b.app.environ, fakeTorch+"=2.7.1") },
			func(b *bench) []string { return []string{b.file("train.py", goodScript)} }, exitMachine, "has PyTorch 2.7.1, and 2.8 or newer is needed"},
		"a time for measuring that is text": {func(b *bench) { b.app.environ = append(b.app.environ, "CEPHALO_PROFILE_SECONDS=abc") },
			func(b *bench) []string { return []string{b.file("train.py", goodScript)} }, exitUsage, `CEPHALO_PROFILE_SECONDS is "abc"`},
		"a time for measuring that is nothing": {func(b *bench) { b.app.environ = append(b.app.environ, "CEPHALO_PROFILE_SECONDS=0") },
			func(b *bench) []string { return []string{b.file("train.py", goodScript)} }, exitUsage, `CEPHALO_PROFILE_SECONDS is "0"`},
		"a time for measuring that is not a number": {func(b *bench) { b.app.environ = append(b.app.environ, "CEPHALO_PROFILE_SECONDS=nan") },
			func(b *bench) []string { return []string{b.file("train.py", goodScript)} }, exitUsage, `CEPHALO_PROFILE_SECONDS is "nan"`},
		"no Python at that path": {nil, func(b *bench) []string { return []string{"--python", "/none/python", b.file("train.py", goodScript)} }, exitMachine, "no Python at /none/python"},
		"a devices file with an unknown field": {nil, func(b *bench) []string {
			return []string{"--devices", "../../testdata/devices/bad-unknown-field.yaml", b.file("train.py", goodScript)}
		}, exitUsage, "bad-unknown-field.yaml"},
		"a devices file with a bad size": {nil, func(b *bench) []string {
			return []string{"--devices", "../../testdata/devices/bad-size.yaml", b.file("train.py", goodScript)}
		}, exitUsage, ".memory"},
		"a devices file with two devices of one name": {nil, func(b *bench) []string {
			return []string{"--devices", "../../testdata/devices/bad-same-name.yaml", b.file("train.py", goodScript)}
		}, exitUsage, "bad-same-name.yaml"},
		"no device": {func(b *bench) {
			lost := card("GPU-a", 9)
			lost.Problem = "is lost"
			b.app.gpus = fleet.Fleet{List: []profiler.Device{lost}}
		}, func(b *bench) []string { return []string{b.file("train.py", goodScript)} }, exitMachine, "no usable device"},
		"a driver that does not answer": {func(b *bench) { b.app.gpus = fleet.Fleet{Fails: profiler.ErrCannotAsk} },
			func(b *bench) []string { return []string{b.file("train.py", goodScript)} }, exitMachine, "could not ask for devices"},
		"global batch of 0":      {nil, func(b *bench) []string { return []string{"--global-batch", "0", "train.py"} }, exitUsage, "whole number from 1 to 131072, or auto"},
		"global batch below 0":   {nil, func(b *bench) []string { return []string{"--global-batch=-4", "train.py"} }, exitUsage, "whole number from 1 to 131072, or auto"},
		"global batch as text":   {nil, func(b *bench) []string { return []string{"--global-batch", "many", "train.py"} }, exitUsage, `"many" for "--global-batch"`},
		"weighting that is none": {nil, func(b *bench) []string { return []string{"--weighting", "words", "train.py"} }, exitUsage, "samples, tokens or mean"},
		"no plan fits": {nil, func(b *bench) []string {
			return []string{"--devices", b.devices(), b.file("train.py", "too-big float32\n")}
		}, exitNoPlan, "bytes"},
		"a profile cut short": {nil, func(b *bench) []string {
			return []string{"plan", "--profile", b.file("p.json", string(measured[:len(measured)/2])), "--global-batch", "8"}
		}, exitUsage, "p.json"},
		"a profile of another version": {nil, func(b *bench) []string {
			return []string{"plan", "--profile", b.file("p.json", strings.Replace(string(measured), `"version": 1`, `"version": 7`, 1)), "--global-batch", "8"}
		}, exitUsage, "version"},
		"a profile that is not there": {nil, func(b *bench) []string { return []string{"plan", "--profile", "/none.json", "--global-batch", "8"} }, exitUsage, "/none.json"},
		"a profile of other devices": {nil, func(b *bench) []string {
			return []string{"--profile", plannerCase, "--devices", b.devices(), b.file("train.py", goodScript)}
		}, exitUsage, "devices, and 2 are used here"},
		"a plan cut short": {nil, func(b *bench) []string {
			return []string{"--plan", b.file("plan.json", `{"version": 1,`), "--devices", b.devices(), b.file("train.py", goodScript)}
		}, exitUsage, "plan.json"},
		"a plan of another version": {nil, func(b *bench) []string {
			return []string{"--plan", b.file("plan.json", `{"version": 2}`), "--devices", b.devices(), b.file("train.py", goodScript)}
		}, exitUsage, "version"},
		"a plan without a profile or script": {nil, func(b *bench) []string { return []string{"plan"} }, exitUsage, "SCRIPT, or --profile FILE"},
		"one GPU without bf16 among others": {func(b *bench) { b.app.gpus = fleet.Fleet{List: []profiler.Device{card("GPU-a", 9), card("GPU-b", 7)}} },
			func(b *bench) []string { return []string{b.file("train.py", "measure bfloat16\nsteps 1\n")} }, exitMachine, "has no native bf16"},
		"no run yet":           {nil, func(b *bench) []string { return []string{"status"} }, exitUsage, "no such run"},
		"too many arguments":   {nil, func(b *bench) []string { return []string{"status", "a", "b"} }, exitUsage, "at most 1 arg"},
		"run without a script": {nil, func(b *bench) []string { return []string{"run"} }, exitUsage, "at least 1 arg"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if c.prepare != nil {
				c.prepare(b)
			}
			b.mustRun(c.code, []string{c.says}, c.args(b)...)
			if c.code == exitUsage {
				if runs, _ := filepath.Glob(filepath.Join(b.dir, "state", "runs", "*")); len(runs) > 0 {
					t.Errorf("it has left %v", runs)
				}
			}
			if lines := strings.Count(strings.TrimSpace(b.err.String()), "\n"); strings.Contains(b.err.String(), "Usage:") || lines > 12 {
				t.Errorf("%d lines:\n%s", lines, b.err.String())
			}
		})
	}
}

// Whatever is given, what is said about it stays readable, also as JSON.
func TestErrorsAreBounded(t *testing.T) {
	b := newBench(t)
	deep := strings.Repeat("[", 100000)
	keys := strings.Repeat(`{"a_long_name":`, 9000)
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf(`"field %d": 1`, i)
	}
	devices := "devices:\n" + strings.Repeat("  - { name: x, kind: y }\n", 5000)
	for name, args := range map[string][]string{
		"a list":            {"plan", "--global-batch", "8", "--profile", b.file("list.json", deep)},
		"objects":           {"plan", "--global-batch", "8", "--profile", b.file("keys.json", keys)},
		"a plan":            {"--plan", b.file("plan.json", deep), "--devices", b.devices(), b.file("train.py", goodScript)},
		"a plan of objects": {"--plan", b.file("plan2.json", keys), "--devices", b.devices(), b.file("train.py", goodScript)},
		"a plan of fields":  {"--plan", b.file("plan3.json", "{"+strings.Join(many, ",")+"}"), "--devices", b.devices(), b.file("train.py", goodScript)},
		"a fleet":           {"devices", "--devices", b.file("fleet.json", "{"+strings.Join(many, ",")+"}")},
		"devices":           {"devices", "--devices", b.file("many.yaml", devices)},
		"yaml":              {"devices", "--devices", b.file("deep.yaml", deep)},
		"a cluster":         simulateFiles(b.file("cluster.yaml", strings.Repeat("a", 1000000)), "../../examples/models/gpt-2.7b.yaml"),
		"an argument":       {strings.Repeat("x", 100000) + "\x1b[2J\r"},
		"a flag":            {"--global-batch", strings.Repeat("x", 100000), "train.py"},
		"names of devices":  {"--devices", strings.Repeat("x,", 50000), b.file("train.py", goodScript)},
	} {
		for _, json := range []string{"--json=false", "--json"} {
			b.err.content.Reset()
			if code := b.run(append([]string{json}, args...)...); code != exitUsage {
				t.Errorf("%s: exit code %d", name, code)
			}
			if said := b.err.String(); len(said) > 20000 || strings.ContainsAny(said, "\x1b\r") {
				t.Errorf("%s: %d bytes: %.300q", name, len(said), said)
			}
		}
	}
}

func simulateFiles(cluster, model string) []string {
	return []string{"simulate", "--cluster", cluster, "--model", model, "--global-batch", "8"}
}

// huge makes a file of a terabyte that takes no room.
func (b *bench) huge(name string) {
	if err := os.Truncate(b.file(name, ""), 1<<40); err != nil {
		b.t.Fatal(err)
	}
}

func TestOutputFolderNotWritable(t *testing.T) {
	b := newBench(t)
	in := b.file("a file", "")
	got := run([]string{"--state-dir", filepath.Join(in, "state"), "--devices", b.devices(), b.file("train.py", goodScript)}, b.app)
	if got != exitUsage || !strings.Contains(b.err.String(), "--state-dir") {
		t.Errorf("exit code %d: %s", got, b.err)
	}
}

// vanishing lists two cards at first and one from the second time on.
type vanishing struct{ asked *int }

func (v vanishing) Devices(context.Context) ([]profiler.Device, error) {
	*v.asked++
	list := []profiler.Device{card("GPU-a", 9), card("GPU-b", 9)}
	if *v.asked > 1 {
		list = list[:1]
	}
	return list, nil
}

func TestADeviceDisappearsBetweenProfileAndLaunch(t *testing.T) {
	b := newBench(t)
	b.app.gpus = vanishing{new(int)}
	b.mustRun(exitMachine, []string{"GPU-b", "is gone now"}, b.file("train.py", goodScript))
}

func TestAPlanOfAnotherModel(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, nil, "plan", "--devices", b.devices(), "--json", b.file("train.py", goodScript))
	plan := b.file("plan.json", b.out.String())
	b.mustRun(exitDone, []string{"done after 12 steps"}, "--plan", plan, "--devices", b.devices(), b.file("train.py", goodScript))
	b.mustRun(exitUsage, []string{"was made for another model"}, "--plan", plan, "--devices", b.devices(), b.file("other.py", goodScript+"steps 1\n"))
	b.mustRun(exitUsage, []string{"is for 2 devices, and 1 are used here"}, "--plan", plan, "--devices", "cpu", b.file("train.py", goodScript))
}

func TestErrorsAsJSON(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitUsage, nil, "--json", "/none.py")
	var record failureRecord
	if err := json.Unmarshal([]byte(b.err.String()), &record); err != nil || record.Code != exitUsage || !strings.Contains(record.Message, "/none.py") {
		t.Errorf("got %q, %v", b.err.String(), err)
	}
	if b.out.String() != "" {
		t.Errorf("standard output: %q", b.out.String())
	}
}

// A relative path would mean another folder.
func TestAWorkingFolderThatIsGone(t *testing.T) {
	b := newBench(t)
	b.app.dirErr = os.ErrNotExist
	b.mustRun(exitUsage, []string{"the working folder is gone"}, b.file("train.py", ""))
}
