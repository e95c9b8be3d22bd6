package orchestrator

import (
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/profiler/cpu"
)

func TestCauses(t *testing.T) {
	raised := func(exception, message string) Failure {
		return Failure{Reason: reasonException, Exception: exception, Message: message}
	}
	peers := raised("RuntimeError", "[gloo] Connection closed by peer")
	peers.ofPeers = true
	killed, stuck, none := Failure{Reason: reasonKilled}, Failure{Reason: reasonStuck}, evidence{}
	gone := evidence{lost: []int{1}}
	cases := map[string]struct {
		failure Failure
		seen    evidence
		want    Cause
	}{
		"the script's own exception":                  {raised("ValueError", "boom"), none, ScriptFault},
		"also when a device is gone":                  {raised("ValueError", "boom"), gone, ScriptFault},
		"a device of its own without memory":          {raised("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"), none, DeviceMemory},
		"a processor without memory":                  {raised("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate memory"), none, DeviceMemory},
		"what the worker says of its memory":          {Failure{Reason: reasonException, Exception: "RuntimeError", NeedsMemory: true}, none, DeviceMemory},
		"words of a disk":                             {raised("ValueError", "No space left on device"), none, ScriptFault},
		"a quota":                                     {raised("OSError", "[Errno 122] Disk quota exceeded: 'x'"), none, QuotaUsed},
		"a limit on sizes":                            {raised("OSError", "[Errno 27] File too large"), none, FileSize},
		"a disk that takes nothing":                   {raised("OSError", "[Errno 30] Read-only file system: 'x'"), none, ReadOnly},
		"a full disk":                                 {raised("OSError", "[Errno 28] No space left on device"), none, DiskFull},
		"user case 47: a lost GPU by its text":        {raised("RuntimeError", "CUDA error: GPU is lost"), none, DeviceLost},
		"user case 47: a GPU that fell off the bus":   {raised("AcceleratorError", "the device has fallen off the bus"), none, DeviceLost},
		"a device that is gone":                       {peers, gone, DeviceLost},
		"a device that is gone, without a word":       {killed, gone, DeviceLost},
		"ranks that wait for a device that is gone":   {stuck, gone, DeviceLost},
		"user case 32: ended by the kernel":           {killed, evidence{oomKills: 1}, HostMemory},
		"user case 32: a plain kill -9":               {killed, none, WorkerKilled},
		"user case 32: an exception while others die": {raised("ValueError", "x"), evidence{oomKills: 1}, ScriptFault},
		"ranks that wait":                             {stuck, none, CollectiveStuck},
		"ranks that only speak of each other":         {peers, none, PeersLost},
		"a rank that left early":                      {Failure{Reason: reasonEarlyExit}, none, EarlyExit},
		"a device that computes wrongly":              {raised(unsoundDevice, ""), none, BadDevice},
		"a script that begins again":                  {raised(startedOver, ""), none, StartedOver},
		"no worker came up":                           {Failure{Rank: events.NoRank, Reason: reasonLauncher}, none, NoLaunch},
	}
	for name, c := range cases {
		if got := causeOf(c.failure, c.seen); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// User case 32: the numbers that the kernel gives are in what is said.
func TestUserCase32WhatIsSaidOfHostMemory(t *testing.T) {
	for p, want := range map[cpu.Pressure]string{
		{LimitBytes: 64 << 30, PeakBytes: 63 << 30}: "for want of host memory (the control group's limit is 64.0 GiB, the most it used 63.0 GiB)",
		{LimitBytes: 64 << 30, PeakBytes: -1}:       "limit is 64.0 GiB, the most it used -)",
		{LimitBytes: -1, PeakBytes: 5}:              "for want of host memory;",
	} {
		if got := hostMemoryMessage(p); !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// A supervisor that was killed may have had no time to write what it knew.
func TestTheJournalKnowsWhatTheBudgetsFileDoesNot(t *testing.T) {
	r := &restarts{BestStep: 2, Checkpoints: []savedCheckpoint{{Path: "/c/step-2", Step: 2, Broken: "x"}}}
	r.replay([]byte(`{"time":"0001-01-01T00:00:00Z","kind":"checkpoint","rank":0,"phase":"saved","path":"/c/step-2","step":2}
{"kind":"step","rank":1,"step":7}
{"time":"2026-01-02T03:04:05Z","kind":"checkpoint","rank":0,"phase":"saved","path":"/c/step-6","step":6,"files":{"a":1}}
{"kind":"step","rank":0,"st`), keptCheckpoints)
	if r.BestStep != 7 || len(r.Checkpoints) != 2 || r.newest().Path != "/c/step-6" || r.newest().Files["a"] != 1 || r.Checkpoints[0].Broken != "x" {
		t.Errorf("got %+v", r)
	}
}
