package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// train runs a script of the fake's under cephalorun.
func (b *bench) train(want int, script string, texts []string, flags ...string) {
	b.t.Helper()
	args := append([]string{"--devices", b.devices()}, flags...)
	b.mustRun(want, texts, append(args, b.file("train.py", "measure float32\nresume\n"+script))...)
}

// journal lists the kinds of the newest run's events with the field that is asked for.
func (b *bench) journal(kind, field string) []any {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "state", "runs", "latest", "events.jsonl"))
	if err != nil {
		b.t.Fatal(err)
	}
	var found []any
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.t.Fatal(err)
		}
		if e["kind"] == kind {
			found = append(found, e[field])
		}
	}
	return found
}

// resume is the flag that tells the fake's scripts to resume.
const resume = "--resume-args=--resume"

// User case 35: one line for each restart with the cause, the count, and where to read.
func TestUserCase35AKilledWorkerIsBroughtBack(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nsteps 5\nuntil 1 kill 1\nsteps 8\n", []string{
		"restart 1 of 3: killed: rank 1 on cpu device slow failed after step 5: the process was killed or crashed",
		"logs/rank-1.log", "step-003 (step 3)", "the script goes on after step 3", "done after 8 steps",
	}, resume)
	if causes := b.journal("restart", "cause"); !slices.Equal(causes, []any{"killed"}) {
		t.Errorf("causes in the journal: %v", causes)
	}
	if at := b.journal("restart", "step"); !slices.Equal(at, []any{3.0}) {
		t.Errorf("resume step in the journal: %v", at)
	}
}

func TestAWorkerThatIsInterruptedIsBroughtBack(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "until 1 fail 1 KeyboardInterrupt\nsteps 4\n", []string{"restart 1 of 3: killed: rank 1", "sent the worker a SIGINT", "done after 4 steps"})
}

func TestAWorkerThatIsKilledBeforeItsFirstStepIsBroughtBack(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "until 1 kill 0\nsteps 4\n", []string{"restart 1 of 3: killed: rank 0", "done after 4 steps"})
}

// User case 33: a typo is not restarted, and neither is what fails twice at the same
// place; a budget bounds the rest.
func TestUserCase33WhatIsNotRestarted(t *testing.T) {
	cases := map[string]struct {
		script   string
		flags    []string
		code     int
		says     []string
		launches int // without the profile's
	}{
		"an error before the first step": {"fail 1 NameError name 'lr' is not defined\n", []string{resume}, exitScript,
			[]string{"NameError: name 'lr'", "not restarted (cause: script): it failed before its first step"}, 1},
		"the same error twice at the same step": {"steps 3\nsave\nsteps 5\nfail 1 ValueError boom\n", []string{resume}, exitScript,
			[]string{"restart 1 of 3: script", "it failed the same way twice after step 5"}, 2},
		"a script that never saved": {"steps 3\nkill 1\n", nil, exitScript,
			[]string{"3 steps are done and no checkpoint was saved", "--resume-args"}, 1},
		"a worker that is killed again and again": {"steps 3\nsave\nkill 1\n", []string{resume}, exitGaveUp,
			[]string{"gave up after 3 restarts: rank 1", "3 restarts brought no progress"}, 4},
		"a budget of the user's own": {"steps 3\nsave\nkill 1\n", []string{resume, "--max-restarts", "1"}, exitGaveUp,
			[]string{"restart 1 of 1", "gave up after 1 restart: "}, 2},
		"no restarts at all": {"steps 3\nsave\nkill 1\n", []string{resume, "--max-restarts", "0"}, exitGaveUp,
			[]string{"0 restarts brought no progress"}, 1},
		"a script that ignores its checkpoint": {"steps 3\nsave\nuntil 1 kill 1\n", nil, exitScript,
			[]string{"StartedOver", "not restarted (cause: started-over)"}, 2},
		"a full disk": {"steps 3\nsave\nfail 1 OSError [Errno 28] No space left on device: 'x'\n", []string{resume}, exitScript,
			[]string{"not restarted (cause: disk-full)"}, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.train(c.code, c.script, c.says, c.flags...)
			if n := len(b.journal("launch", "pid")) - 1; n != c.launches {
				t.Errorf("%d launches, want %d", n, c.launches)
			}
			last := strings.Split(strings.TrimSpace(b.err.String()), "\n")
			if !strings.HasPrefix(last[len(last)-1], "cephalorun: ") {
				t.Errorf("the last line is not the cause: %q", last[len(last)-1])
			}
		})
	}
}

// A last save that failed is lost work: the cause is named, with what to do about it.
func TestTheLastSaveFailed(t *testing.T) {
	for told, says := range map[string][]string{
		"read-only the file system is read-only":    {"(cause: read-only): make the file system writable", "could not be saved: the file system is read-only"},
		"disk-full it needs 1.0 GiB":                {"(cause: disk-full): make room, and start it again"},
		"quota the disk quota is used up":           {"(cause: quota): remove files, or have the quota raised"},
		"file-size a file would be larger":          {"(cause: file-size): raise the limit on file sizes (ulimit -f)"},
		"script PermissionError: Permission denied": {"(cause: script): mend what the message says", "PermissionError: Permission denied"},
	} {
		b := newBench(t)
		b.train(exitScript, "steps 3\nsave\nsteps 5\nfail-save "+told+"\n", append(says, "the script has ended, and its last checkpoint could not be saved"))
		if told[0] != 'd' && strings.Contains(b.err.String(), "make room") {
			t.Errorf("%s: %s", told, b.err)
		}
	}
	newBench(t).train(exitDone, "steps 3\nfail-save quota x\nsteps 5\nsave\n", []string{"could not be saved: x; the training goes on"})
}

// User case 55: killed between the two renames of a save; the older checkpoint gets its
// name back, and what was being saved is named.
func TestUserCase55KilledBetweenTwoNames(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nuntil 1 steps 5\nuntil 1 save\nuntil 1 rename step-005 saving-step-003\n"+
		"until 1 rename step-003 replaced-step-003\nuntil 1 kill 1\nsteps 8\n", []string{
		"checkpoint step-003 has its name back", "checkpoint saving-step-003 is incomplete", "the script goes on after step 3", "done after 8 steps",
	}, resume)
}

// A rank that hangs on when another one has died does not hold the restart up.
func TestARankThatDoesNotNoticeIsEnded(t *testing.T) {
	b := newBench(t)
	began := time.Now()
	b.train(exitDone, "steps 3\nsave\nuntil 1 deaf\nuntil 1 kill 1\nsteps 5\n", []string{"restart 1 of 3: killed: rank 1", "done after 5 steps"}, resume)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// Progress fills the budget again: each attempt gets one step further here.
func TestProgressRefillsTheBudget(t *testing.T) {
	b := newBench(t)
	var script strings.Builder
	for n := 1; n <= 5; n++ {
		script.WriteString("steps " + jsonNumber(n) + "\nsave\nuntil " + jsonNumber(n) + " kill 1\n")
	}
	b.train(exitDone, script.String()+"steps 7\n", []string{"done after 7 steps"}, resume, "--max-restarts", "1")
	if n := len(b.journal("restart", "cause")); n != 5 {
		t.Errorf("%d restarts", n)
	}
	for _, d := range b.pauses {
		if d != 100*time.Millisecond {
			t.Errorf("pauses %v: after progress the next restart is quick", b.pauses)
			break
		}
	}
}

func TestPausesGrow(t *testing.T) {
	b := newBench(t)
	b.train(exitGaveUp, "steps 3\nsave\nkill 1\n", nil, resume, "--max-restarts", "4")
	if len(b.pauses) != 4 || !slices.IsSorted(b.pauses) || b.pauses[0] >= b.pauses[3] {
		t.Errorf("pauses %v", b.pauses)
	}
}

// User case 34: 20 of 20 restarts reach their next step, each with a launcher and a
// run id of its own.
func TestUserCase34TwentyRestartsOfTwentyComeUp(t *testing.T) {
	b := newBench(t)
	var script strings.Builder
	for n := range 20 {
		script.WriteString("steps " + jsonNumber(n+1) + "\nsave\nuntil " + jsonNumber(n+1) + " kill 1\n")
	}
	b.train(exitDone, script.String()+"steps 22\n", []string{"done after 22 steps"}, resume)
	ids := map[any]bool{}
	for _, id := range b.journal("launch", "message") {
		if ids[id] {
			t.Errorf("two attempts of one id: %v", id)
		}
		ids[id] = true
	}
	if len(ids) != 22 { // with the profile's
		t.Errorf("%d attempts", len(ids))
	}
}

// User case 55: the newest checkpoint was cut short; it is named, set aside and skipped,
// and the one before it is used.
func TestUserCase55AnIncompleteCheckpointIsSkipped(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nsteps 5\nsave\nuntil 1 cut shard\nuntil 1 kill 1\nsteps 8\n", []string{
		"step-005 is incomplete (shard has 1 of 9 bytes): skipped, and kept as incomplete-step-005",
		"step-003 (step 3)", "the script goes on after step 3", "done after 8 steps",
	}, resume)
	aside := filepath.Join(b.dir, "state", "runs", "latest", "checkpoints", "incomplete-step-005")
	if _, err := os.Stat(aside); err != nil {
		t.Errorf("nothing may be deleted: %v", err)
	}
}

// When all checkpoints of a run are gone the script would begin again at step 1, with all steps to
// be done again: the run ends, nothing is renamed, and another supervisor does not begin either.
func TestNothingIsBegunAgainWhenAllCheckpointsAreGone(t *testing.T) {
	for name, c := range map[string]struct{ lose, why string }{
		"gone":       {"rename step-003 elsewhere/step-003", "it cannot be found"},
		"incomplete": {"cut shard", "shard has 1 of 9 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			says := []string{"no checkpoint of this run is left whole (the newest one known, ", "step-003: " + c.why + ")", "put a checkpoint back"}
			b.train(exitScript, "steps 3\nsave\nsteps 5\nown elsewhere/x\n"+c.lose+"\nkill 1\n", append(says, "not restarted (cause: killed)", "do 5 steps again"), resume)
			b.err.content.Reset()
			b.mustRun(exitUsage, says, "resume")
			if names, _ := filepath.Glob(filepath.Join(b.dir, "state", "runs", "latest", "checkpoints", "incomplete-*")); len(names) > 0 {
				t.Errorf("renamed: %v", names)
			}
		})
	}
}

// One that lies beside those that are gone is enough, since the script finds it; a script that
// does not is stopped at its first step.
func TestAnotherCheckpointBesideThoseThatAreGone(t *testing.T) {
	script := "steps 3\nsave\nuntil 1 rename step-003 %s\nuntil 1 kill 1\nsteps 5\n"
	newBench(t).train(exitDone, fmt.Sprintf(script, "step-002"), []string{"step-003 is not there any more", "the script goes on after step 2", "done after 5 steps"}, resume)
	newBench(t).train(exitScript, fmt.Sprintf(script, "other"), []string{"not restarted (cause: started-over)"}, resume)
}

// A checkpoint may be damaged although its files have their sizes: reading all of it tells, and
// the one before it is used.
func TestADamagedCheckpointIsSkipped(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "resume\nuntil 1 steps 3\nuntil 1 save\nuntil 1 steps 5\nuntil 1 save\nuntil 1 spoil\nuntil 1 kill 1\nsteps 8\n", []string{
		"step-005 could not be loaded: reading all of it", "restart 2 of 3: checkpoint: checkpoint ",
		"step-005 is incomplete (weight: shard cannot be read): skipped, and kept as incomplete-step-005",
		"the script goes on after step 3", "done after 8 steps",
	}, resume)
}

// Without another one the script would begin again at step 1, so the run ends and nothing is
// renamed. A checkpoint that is whole and does not load is the script's own fault.
func TestADamagedCheckpointWithoutAnotherEndsTheRun(t *testing.T) {
	b := newBench(t)
	b.train(exitScript, "resume\nuntil 1 steps 3\nuntil 1 save\nuntil 1 spoil\nuntil 1 kill 1\nsteps 8\n", []string{
		"not restarted (cause: checkpoint): without this checkpoint",
		"step-003 is damaged (weight: shard cannot be read), and no other whole one lies beside it: put a whole copy of it there, or move it away",
	}, resume)
	last := strings.Split(strings.TrimSpace(b.err.String()), "\n")
	if text := last[len(last)-1]; !strings.HasPrefix(text, "cephalorun: checkpoint ") {
		t.Errorf("the last line is %q", text)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "state", "runs", "latest", "checkpoints", "step-003")); err != nil {
		t.Errorf("it must keep its name: %v", err)
	}
}

// A rank that dies may have told of its last step, and reported it no more: all that is said of
// the failure counts it.
func TestAStepThatWasNotReportedCounts(t *testing.T) {
	b := newBench(t)
	b.train(exitScript, "steps 5\nstep-held\nkill 1\n", []string{
		"failed after 6 steps in", "rank 1 on cpu device slow failed after step 6", "6 steps are done and no checkpoint",
	})
	b = newBench(t)
	b.train(exitDone, "until 1 steps 5\nuntil 1 step-held\nuntil 1 save\nuntil 1 kill-launcher 9\nsteps 8\n", []string{
		"the launcher was killed after step 6", "step-006 (step 6)", "at step 8",
	}, resume)
}

// Torchrun itself was ended by somebody; no rank is to blame.
func TestASignalToTheLauncherNamesNoRank(t *testing.T) {
	for signal, name := range map[string]string{"9": "SIGKILL", "15": "SIGTERM"} {
		b := newBench(t)
		b.train(exitDone, "resume\nuntil 1 steps 3\nuntil 1 save\nuntil 1 kill-launcher "+signal+"\nsteps 5\n", []string{
			"restart 1 of 3: launcher: the launcher was killed after step 3: torchrun was ended by signal " + signal + " (" + name + ") from outside", "done after 5 steps",
		}, resume)
	}
}

// The process that torchrun runs under was killed; again no rank is to blame.
func TestAKilledGuardNamesNoRank(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "resume\nuntil 1 steps 3\nuntil 1 save\nuntil 1 kill-guard\nsteps 5\n", []string{
		"restart 1 of 3: launcher: the launcher was killed after step 3: cephalorun's guard process (pid ", "no rank is the cause", "done after 5 steps",
	}, resume)
}

func TestAKilledGuardBeforeTheFirstStep(t *testing.T) {
	b := newBench(t)
	b.train(exitGaveUp, "kill-guard\n", []string{
		"cephalorun: gave up after 1 restart: the launcher was killed before the first step: cephalorun's guard process", "not restarted (cause: launcher): 1 restart brought no progress",
	}, resume, "--max-restarts", "1")
}

// A run whose folder is gone cannot be restarted; what ended it is named all the same.
func TestAFailureIsNamedWhereTheRunsFolderIsGone(t *testing.T) {
	b := newBench(t)
	b.err.on("step ", func() {
		runs, err := filepath.Glob(filepath.Join(b.dir, "state", "runs", "2*"))
		if err != nil || len(runs) != 1 {
			t.Errorf("runs %v, %v", runs, err)
		}
		for _, run := range runs {
			if err := os.Rename(run, run+".gone"); err != nil {
				t.Error(err)
			}
		}
	})
	b.train(exitScript, "steps 3\nsave\nsteps 100\nkill 1\n", []string{
		"rank 1 on cpu device slow failed after step 100: the process was killed or crashed", "the run's folder cannot be written",
	}, resume)
}

// The cause is what the screen shows, and not the traceback of a rank that lost its peer.
func TestAVictimsTracebackStaysInItsLog(t *testing.T) {
	b := newBench(t)
	b.train(exitScript, "steps 2\nvictim\n", []string{"goodbye of a victim", "rank 0 was stopped because of rank 1"})
	if text := b.err.String(); strings.Contains(text, "Traceback of a victim") {
		t.Errorf("the screen has it:\n%s", text)
	}
	if log := readFile(t, filepath.Join(b.dir, "state", "runs", "latest", "logs", "rank-0.log")); !strings.Contains(log, "Traceback of a victim") {
		t.Errorf("the log has not: %s", log)
	}
	b = newBench(t)
	b.train(exitScript, "steps 2\nfail 0 ValueError boom\n", nil)
	if text := b.err.String(); strings.Index(text, "Traceback: ValueError") > strings.Index(text, "failed after 2 steps") {
		t.Errorf("the traceback of rank 0 itself is not shown:\n%s", text)
	}
}
