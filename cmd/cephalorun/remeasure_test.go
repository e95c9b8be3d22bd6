package main

import (
	"path/filepath"
	"testing"
)

// What happens to workers while the model is measured is no fault of the script's either: it
// is measured again, within the same budget, and the training is not told of it.
func TestAFailureWhileMeasuring(t *testing.T) {
	cases := map[string]struct {
		script string
		code   int
		says   []string
	}{
		"a worker that is killed once": {"once kill 1\nmeasure float32\nuntil 1 print first start\nsteps 4\n", exitDone,
			[]string{"measuring again, restart 1 of 2: killed: rank 1 on cpu device slow failed before its first step", "profile-rank-1.log", "first start", "done after 4 steps"}},
		"a worker that is killed again and again": {"kill 1\nmeasure float32\nsteps 4\n", exitGaveUp,
			[]string{"gave up after 2 restarts: rank 1", "not restarted (cause: killed): 2 restarts brought no progress"}},
		"a launcher that is killed": {"once kill-launcher 9\nmeasure float32\nsteps 4\n", exitDone,
			[]string{"measuring again, restart 1 of 2: launcher: the launcher was killed before the first step", "done after 4 steps"}},
		"an error of the script's own": {"fail 1 NameError name 'lr' is not defined\nmeasure float32\n", exitScript,
			[]string{"NameError: name 'lr'", "not restarted (cause: script): it failed before its first step"}},
		"no memory on the device": {"oom 1 5000000000\nmeasure float32\n", exitScript,
			[]string{"not restarted (cause: device-memory): measuring would need as much memory again"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.mustRun(c.code, c.says, "--devices", b.devices(), "--max-restarts", "2", b.file("train.py", c.script))
		})
	}
}

func TestAWorkerThatIsKilledForAProfile(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{"measuring again, restart 1 of 3: killed: rank 1"},
		"profile", "--devices", b.devices(), b.file("train.py", "once kill 1\nmeasure float32\n"))
}

// Who looks for what a rank said before a measurement failed need not know where it is kept.
func TestTheLogsOfAMeasurementThatFailed(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitScript, []string{"NameError"}, "--devices", b.devices(),
		b.file("train.py", "print on my way\nfail 1 NameError name 'lr' is not defined\nmeasure float32\n"))
	b.mustRun(exitDone, []string{"[rank 1|slow] on my way"}, "logs")
}

func TestWaitsBelowZeroAreRefused(t *testing.T) {
	b := newBench(t)
	script := b.file("train.py", "measure float32\n")
	for _, flag := range []string{"--stuck-after", "--stop-grace"} {
		b.mustRun(exitUsage, []string{flag + " is -1s"}, flag, "-1s", "--devices", b.devices(), script)
	}
	if entries, _ := filepath.Glob(filepath.Join(b.dir, "state", "runs", "*")); len(entries) > 0 {
		t.Errorf("what was refused left %v", entries)
	}
}
