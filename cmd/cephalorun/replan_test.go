package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/cephalorun/cephalorun/solver"
)

// plan is the plan of the newest run.
func (b *bench) plan() solver.Plan {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "state", "runs", "latest", "plan.json"))
	if err != nil {
		b.t.Fatal(err)
	}
	plan, err := solver.ParsePlan(data)
	if err != nil {
		b.t.Fatal(err)
	}
	return plan
}

// User case 47: a device is gone; it is left out and the rest goes on with the same
// global batch.
func TestUserCase47ALostDeviceIsLeftOut(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nuntil 1 lose slow\nuntil 1 kill 1\nsteps 8\n", []string{
		"restart 1 of 3: device-lost: rank 1 on cpu device slow", "cpu device slow is left out from here on",
		"global batch 16: as before in this run", "the script goes on after step 3", "done after 8 steps",
	}, resume)
	if p := b.plan(); len(p.Ranks) != 1 || p.GlobalBatch != 16 || p.Ranks[0].Batch != 16 {
		t.Errorf("plan %+v", p)
	}
}

// A GPU that says itself that it is lost is left out, whatever the driver still lists.
func TestUserCase47AGPUThatIsLostByItsOwnWord(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "until 1 fail 1 RuntimeError CUDA error: GPU is lost\nsteps 4\n",
		[]string{"restart 1 of 3: device-lost: rank 1", "slow is left out", "done after 4 steps"}, resume)
}

func TestADeviceThatIsBackIsUsedFromTheNextCheckpointOn(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nuntil 1 lose slow\nuntil 1 kill 1\nsteps 5\nuntil 2 find slow\nuntil 2 train-on\nsteps 3000\n", []string{
		"slow is left out", "slow is back and is used again", "done after 3000 steps",
	}, resume)
	if p := b.plan(); len(p.Ranks) != 2 || p.GlobalBatch != 16 {
		t.Errorf("plan %+v", p)
	}
}

func TestADeviceThatComesAndGoesIsLeftOutForGood(t *testing.T) {
	b := newBench(t)
	script := "steps 3\nsave\n"
	for n := 1; n <= 5; n += 2 { // lost before restart 1, 3 and 5; back in between
		script += "until " + jsonNumber(n) + " lose slow\nuntil " + jsonNumber(n) + " kill 1\n" +
			"until " + jsonNumber(n+1) + " find slow\nuntil " + jsonNumber(n+1) + " train-on\n"
	}
	b.train(exitDone, script+"steps 3000\n", []string{"done after 3000 steps"}, resume)
	if p := b.plan(); len(p.Ranks) != 1 {
		t.Errorf("plan %+v", p)
	}
}

// User case 22: one rank runs out of memory; it gets less, the global batch stays, and
// what was learnt is in the profile of the next run.
func TestUserCase22ARankThatRunsOutOfMemoryGetsLess(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "until 1 oom 0 1072693248\nsteps 4\n", []string{
		"restart 1 of 3: device-memory: rank 0 on cpu device fast", "rank 0 (fast) ran out of memory at microbatches of 12 (it needs",
		"re-planned: rank 0 goes from microbatches of 12, batch 12, to", "the global batch is 16 as before", "done after 4 steps",
	}, resume)
	data, err := os.ReadFile(filepath.Join(b.dir, "state", "runs", "latest", "profile.json"))
	if err != nil {
		t.Fatal(err)
	}
	var profile struct {
		Devices []struct {
			Reserved int64 `json:"reserved_bytes"`
		} `json:"devices"`
	}
	if err := json.Unmarshal(data, &profile); err != nil {
		t.Fatal(err)
	}
	if profile.Devices[0].Reserved <= 1<<20 || profile.Devices[1].Reserved != 1<<20 {
		t.Errorf("only rank 0's numbers may change: %+v", profile.Devices)
	}
	small := b.plan().Ranks[0]
	b.train(exitDone, "until 1 oom 0 1072693248\nsteps 4\n", []string{"profile: measured before"}, resume, "--max-restarts", "9")
	if again := b.plan().Ranks[0]; again.Predicted.MemoryBytes > small.Predicted.UsableMemoryBytes {
		t.Errorf("the next run has forgotten: %+v", again)
	}
}

func TestARankThatDoesNotSayHowMuchMemoryItNeeds(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "until 1 oom 0 0\nsteps 4\n", []string{"re-planned: rank 0 goes from", "done after 4 steps"}, resume)
}
