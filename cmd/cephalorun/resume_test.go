package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// User cases 26 and 27: a scheduler's signal is passed on as a request to save and stop;
// the next start goes on where the run was.
func TestUserCase26ASchedulerStopsARunAndItGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		signal unix.Signal
		code   int
	}{"SIGTERM": {unix.SIGTERM, 143}, "SIGUSR1": {unix.SIGUSR1, 138}, "SIGUSR2": {unix.SIGUSR2, 140}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(c.signal) })
			script := "steps 3\nsave\nuntil 1 steps 5\nuntil 1 await save-and-stop\nsteps 8\n"
			b.train(c.code, script, []string{"waiting for the script's next checkpoint, 3"}, resume)
			b.mustRun(exitDone, []string{"is taken up again (last step so far: 5)", "the script goes on after step 5", "done after 3 steps"}, "resume")
			b.mustRun(exitUsage, []string{"is done"}, "resume")
		})
	}
}

// A run that is taken up again is the same run: its script and its start are shown as before.
func TestStatusOfARunThatIsTakenUpAgain(t *testing.T) {
	b := newBench(t)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b.app.now = func() time.Time { return began }
	b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
	b.train(143, "steps 3\nsave\nuntil 1 await save-and-stop\nsteps 5\n", nil, resume)
	script := "script: " + filepath.Join(b.dir, "train.py") + ", started 2026-01-02T03:04:05Z"
	b.mustRun(exitDone, []string{script + "\n"}, "status")
	b.app.now = func() time.Time { return began.Add(time.Hour) }
	t.Chdir(t.TempDir())
	b.mustRun(exitDone, []string{"done after 2 steps"}, "resume")
	b.mustRun(exitDone, []string{script + ", taken up again 2026-01-02T04:04:05Z\n"}, "status")
}

// A script that is taken up again after its last step has nothing left to do, which is said.
func TestNothingIsLeftToDo(t *testing.T) {
	b := newBench(t)
	b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
	b.train(143, "steps 3\nsave\nuntil 1 await save-and-stop\nend untrained\n", nil, resume)
	b.mustRun(exitDone, []string{"done after 0 steps", "at step 3: the script found nothing left to do"}, "resume")
}

func TestADamagedRestartsFileIsNamed(t *testing.T) {
	b := newBench(t)
	b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
	b.train(143, "steps 3\nsave\nuntil 1 await save-and-stop\n", nil, resume)
	if err := os.WriteFile(filepath.Join(b.dir, "state", "runs", "latest", "restarts.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.mustRun(exitUsage, []string{"restarts.json: it is damaged: unexpected end", "remove it and try again"}, "resume")
	b.mustRun(exitUsage, []string{"restarts.json: it is damaged: unexpected end", "remove it and try again"}, "checkpoint", "ls")
	if err := os.Remove(filepath.Join(b.dir, "state", "runs", "latest", "restarts.json")); err != nil {
		t.Fatal(err)
	}
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"checkpoints/step-003"}, "checkpoint", "ls") // the journal knows it
	b.mustRun(exitDone, []string{"global batch 16: as before in this run", "step-003 (step 3)", "the script goes on after step 3"}, "resume")
}

// Where all that a run kept of its past is gone but its report, the steps done are known, and
// nothing is begun again at step 1 without a word.
func TestTheReportAloneKnowsTheSteps(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"with --resume-args":    {[]string{resume}, exitDone, "no whole checkpoint is known: the script may begin again at step 1, and do 3 steps again"},
		"without --resume-args": {nil, exitUsage, "3 steps are done and no checkpoint of this run is known, so the script would begin again at step 1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
			b.train(143, "until 1 steps 3\nuntil 1 save\nuntil 1 await save-and-stop\nsteps 5\n", nil, c.flags...)
			run := filepath.Join(b.dir, "state", "runs", "latest")
			for _, name := range []string{"restarts.json", "events.jsonl", "status.json", "checkpoints"} {
				if err := os.RemoveAll(filepath.Join(run, name)); err != nil {
					t.Fatal(err)
				}
			}
			b.mustRun(c.code, []string{c.says}, "resume")
		})
	}
}

// What a run that is stopped says last: the step that it has come to, those before it was taken up
// again counted, and what it can go on from.
func TestWhatAStoppedRunSays(t *testing.T) {
	b := newBench(t)
	b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
	b.train(143, "steps 3\nsave\nuntil 1 await save-and-stop\nsteps 5\nprint again\nwait\n", []string{
		"stopped by SIGTERM after step 3", "the newest checkpoint is ", "step-003 (step 3); cephalorun resume 2"}, resume)
	again := newBench(t)
	again.dir, again.app.dir = b.dir, b.dir
	again.out.on("again", func() { again.signal(unix.SIGINT) })
	again.mustRun(130, []string{"stopped after 2 steps in", "at step 5", "cephalorun: stopped by SIGINT after step 5\n"}, "resume")

	for says, flags := range map[string][]string{
		"nothing of this is saved, and the script would begin again at step 1":                     nil,
		"no distributed checkpoint of the script was seen; if it saves in another way, cephalorun": {resume},
	} {
		b := newBench(t)
		b.out.on("ready", func() { b.signal(unix.SIGINT) })
		b.train(130, "steps 1\nprint ready\nwait\n", []string{says, "stopped after 1 step in", "stopped by SIGINT after step 1\n"}, flags...)
	}
	b = newBench(t)
	b.out.on("ready", func() { b.signal(unix.SIGINT) })
	b.train(130, "print ready\nwait\n", []string{"stopped by SIGINT before the first step\n"})
	if strings.Contains(b.err.String(), "nothing of this is saved") {
		t.Errorf("there was nothing to save:\n%s", b.err)
	}
}

// mustKeep waits until the supervisor has noted a checkpoint.
func (b *bench) mustKeep(name string) {
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		data, _ := os.ReadFile(filepath.Join(b.dir, "state", "runs", "latest", "restarts.json"))
		if strings.Contains(string(data), name) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Errorf("%s was not noted", name)
}

// User case 27: the checkpoint does not come in time, so the run stops after a step.
func TestUserCase27NoCheckpointWithinTheGrace(t *testing.T) {
	b := newBench(t)
	b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
	b.train(143, "steps 3\nsave\nawait stop\n", []string{"waiting for the script's next checkpoint, 1 s"}, resume, "--stop-grace", "9s")
}

// User case 33: the budget is in the run's folder; a new supervisor does not refill it.
func TestUserCase33TheBudgetSurvivesTheSupervisor(t *testing.T) {
	b := newBench(t)
	b.train(exitGaveUp, "steps 3\nsave\nkill 1\n", nil, resume, "--max-restarts", "2")
	b.mustRun(exitGaveUp, []string{"2 of 2 restarts without progress are used up", "gave up after"}, "resume")
	if n := len(b.journal("restart", "cause")); n != 2 {
		t.Errorf("%d restarts, want those of the first supervisor", n)
	}
}

func TestOnlyOneSupervisorOwnsARun(t *testing.T) {
	b := newBench(t)
	other := newBench(t)
	other.dir = b.dir
	code := make(chan int, 1)
	b.out.on("waiting", func() { code <- other.run("resume"); b.signal(unix.SIGINT) })
	b.train(130, "steps 1\nwait\n", nil)
	if got := <-code; got != exitUsage || !strings.Contains(other.err.String(), "belongs to a living process") {
		t.Errorf("exit code %d: %s", got, other.err)
	}
}

// mainRole makes the test binary the program itself, with the bench's surroundings.
const mainRole = "FAKE_MAIN"

// fakeMain is the program in a process of its own.
func fakeMain(args []string) int {
	a, release := newApp()
	defer release()
	a.pause = func(context.Context, time.Duration) {}
	a.environ = append(a.environ, fakeRole+"=python")
	return run(args, a)
}

// User case 26: the supervisor is killed; nothing of its run is left, and another one
// takes the run up.
func TestUserCase26AKilledSupervisorLosesNothing(t *testing.T) {
	b := newBench(t)
	script := b.file("train.py", "measure float32\nresume\nsteps 3\nsave\nuntil 1 steps 5\nuntil 1 print all are here\nuntil 1 kill 9\nsteps 8\n")
	c := exec.Command("/proc/self/exe", "--state-dir", filepath.Join(b.dir, "state"), "--devices", b.devices(), resume, script)
	c.Env = append(os.Environ(), mainRole+"=1", fakeTorch+"=2.15.0", "PATH=/nowhere", "CEPHALO_PYTHON="+executable(t))
	c.Dir = b.dir
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = b.err
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	read := make([]byte, 100)
	n, err := io.ReadAtLeast(out, read, len("all are here"))
	if err != nil {
		t.Fatalf("%q, %v: %s", read[:n], err, b.err)
	}
	b.mustKeep("step-003")
	workers := b.workers()
	if len(workers) != 2 {
		t.Fatalf("workers %v", workers)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	for _, pid := range workers {
		mustEnd(t, pid, 5*time.Second)
	}
	b.mustRun(exitDone, []string{"lost"}, "status")
	b.mustRun(exitDone, []string{"the script goes on after step 3", "done after 5 steps"}, "resume")
}

// workers are the pids of the newest attempt's workers.
func (b *bench) workers() []int {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "state", "runs", "latest", "events.jsonl"))
	if err != nil {
		b.t.Fatal(err)
	}
	var pids []int
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var e struct {
			Kind string
			PID  int
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		switch e.Kind {
		case "launch":
			pids = nil
		case "start":
			pids = append(pids, e.PID)
		}
	}
	return pids
}

// mustEnd waits for a process to end.
func mustEnd(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit.Milliseconds())); n == 0 {
		t.Errorf("process %d is left", pid)
	}
}

// A profile that was given by hand is of the devices of the start; resume, which has no
// flags, measures again where there are others now.
func TestAGivenProfileDoesNotKeepARunFromOtherDevices(t *testing.T) {
	b := newBench(t)
	script := "measure float32\nresume\nsteps 3\nsave\nuntil 1 await save-and-stop\nsteps 5\n"
	b.mustRun(exitDone, nil, "profile", "--json", "--devices", b.devices(), b.file("train.py", script))
	given := b.file("given.json", b.out.String())
	b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
	b.mustRun(143, nil, "--devices", b.devices(), "--profile", given, resume, filepath.Join(b.dir, "train.py"))
	b.file("devices.yaml", "devices:\n  - { name: fast, kind: cpu, threads: 1, memory: 1GiB }\n  - { name: slow, kind: cpu, threads: 1, memory: 2GiB, slowdown: 3 }\n")
	b.mustRun(exitDone, []string{"--profile " + given + ", which is of another model or other devices", "profile: measuring"}, "resume")
}

// Who dies on the way down is named: the checkpoint that was waited for does not come.
func TestARankThatIsKilledWhileTheRunStops(t *testing.T) {
	b := newBench(t)
	b.out.on("waiting", func() { b.mustKeep("step-003"); b.signal(unix.SIGTERM) })
	b.train(143, "steps 3\nsave\nkilled-while-stopping 1\n",
		[]string{"note: before the run had stopped, rank 1 on cpu device slow failed after step 3: the process was killed or crashed",
			"logs/rank-1.log", "stopped by SIGTERM after step 3"}, resume, "--stop-grace", "20s")
}
