package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// User case 36: a rank has failed. The other ranks are ended, the exit code is final for
// whatever started us, and the folder holds all logs and the last error, for people and
// for programs.
func TestUserCase36WhatIsLeftOfARunThatFailed(t *testing.T) {
	b := newBench(t)
	b.train(exitScript, "print hello from\nsteps 2\nfail 1 ValueError bad label\nfail 1 ValueError bad label\n", []string{"ValueError: bad label"})
	run := filepath.Join(b.dir, "state", "runs", "latest")
	var status struct {
		State   string
		Failure struct {
			Rank      int
			Cause     string
			Exception string
			Message   string
			LogPath   string `json:"log_path"`
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(run, "status.json"))), &status); err != nil {
		t.Fatal(err)
	}
	f := status.Failure
	if status.State != "failed" || f.Rank != 1 || f.Cause != "script" || f.Exception != "ValueError" || f.Message != "bad label" {
		t.Errorf("status.json: %+v", status)
	}
	for _, name := range []string{"rank-0.log", "rank-1.log"} {
		if log := readFile(t, filepath.Join(run, "logs", name)); !strings.Contains(log, "hello from") {
			t.Errorf("%s: %q", name, log)
		}
	}
	if log := readFile(t, f.LogPath); !strings.Contains(log, "Traceback: ValueError") {
		t.Errorf("the log that is named: %q", log)
	}
	b.mustRun(exitDone, []string{"failed", "bad label"}, "status")
}

// User case 36: what a scheduler ended is told apart from what failed, by the exit code
// and by the record.
func TestUserCase36WhatIsLeftOfARunThatWasStopped(t *testing.T) {
	b := newBench(t)
	b.out.on("ready", func() { b.signal(unix.SIGTERM) })
	b.mustRun(exitSignal+int(unix.SIGTERM), nil, "--devices", b.devices(), b.file("train.py", "measure float32\nsteps 1\nprint ready\nwait\n"))
	status := readFile(t, filepath.Join(b.dir, "state", "runs", "latest", "status.json"))
	if !strings.Contains(status, `"state": "stopped"`) || strings.Contains(status, `"failure"`) {
		t.Errorf("status.json: %s", status)
	}
}
