package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator"
)

// User case 55: incomplete checkpoints are named, whoever left them.
func TestUserCase55ListOfCheckpoints(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nsave\nsteps 5\nsave\nuntil 1 cut shard\nuntil 1 kill 1\nsteps 8\nsave\n", nil, resume)
	folder := filepath.Join(b.dir, "state", "runs", "latest", "checkpoints")
	for name, file := range map[string]string{"step-900": "__0_0.distcp", "saving-step-901": "__0_0.distcp", "no-checkpoint": "x"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name, file), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.out.content.Reset()
	b.mustRun(exitDone, nil, "checkpoint", "ls", "--json")
	var list []orchestrator.Checkpoint
	if err := json.Unmarshal([]byte(b.out.String()), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range list {
		got[filepath.Base(c.Path)] = c.Problem
	}
	want := map[string]string{"step-003": "", "step-005": "", "step-008": "", "incomplete-step-005": "it was set aside because it is incomplete",
		"step-900": ".metadata is missing: it is written last", "saving-step-901": "it was being saved"}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for name, problem := range want {
		if p, ok := got[name]; !ok || p != problem {
			t.Errorf("%s: %q (%v), want %q", name, p, ok, problem)
		}
	}
	b.out.content.Reset()
	b.mustRun(exitDone, []string{"step-008", "incomplete: it was being saved"}, "checkpoint", "ls", folder)
	lines := strings.Split(b.out.String(), "\n")
	for _, line := range lines[1:5] { // the state begins below its heading
		at := strings.Index(lines[0], "state")
		if state := line[at:]; !strings.HasPrefix(state, "whole") && !strings.HasPrefix(state, "incomplete: ") || line[at-1] != ' ' {
			t.Errorf("the columns are not aligned:\n%s", b.out)
		}
	}
	b.mustRun(exitUsage, []string{"neither a folder nor a run"}, "checkpoint", "ls", "nothing")
	b.mustRun(exitUsage, []string{"nothing", "there is no such folder"}, "checkpoint", "verify", "nothing")
	whole, script := filepath.Join(folder, "step-008"), b.file("train.py", "steps 1\n")
	for out, says := range map[string]string{
		folder:                                 "is there and is not a file",
		filepath.Join(whole, "__0_0.distcp"):   "inside of the checkpoint",
		filepath.Join(folder, "none", "model"): "there is no folder",
		script:                                 "only files named *.safetensors are replaced",
	} {
		b.mustRun(exitUsage, []string{out, says}, "checkpoint", "export", whole, out)
	}
	for name, problem := range map[string]string{"pipe": ".metadata is not a file", "link": ""} {
		dir := filepath.Join(b.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		put := func(path string) error { return unix.Mkfifo(path, 0o600) }
		if name == "link" {
			put = func(path string) error { return os.Symlink(filepath.Join(whole, ".metadata"), path) }
		}
		if err := put(filepath.Join(dir, ".metadata")); err != nil {
			t.Fatal(err)
		}
		if found, err := orchestrator.CheckpointsIn(dir); err != nil || len(found) != 1 || found[0].Problem != problem {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "step-\n9"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "step-\n9", "__0_0.distcp"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "step-\n9", ".metadata"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.mustRun(exitDone, []string{"step-·9", "incomplete: .metadata is empty"}, "checkpoint", "ls", folder)
}

// folder makes a folder of the bench with some files.
func (b *bench) folder(name string, files ...string) string {
	b.t.Helper()
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("spoilt"), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	return dir
}

// One path without a checkpoint does not keep the others from being looked at.
func TestVerifyLooksAtAllCheckpoints(t *testing.T) {
	b := newBench(t)
	whole, other, damaged := b.folder("whole"), b.folder("other"), b.folder("damaged", "shard")
	file := b.file("file", "")
	b.mustRun(exitUsage, []string{whole + " is whole: 1 tensor, 0 B in 2 files", other + " is whole",
		"checkpoint nope: there is no such folder", "checkpoint " + file + ": it is a file, and a checkpoint is a folder",
		"checkpoint " + damaged + " is not whole: weight: shard cannot be read"},
		"checkpoint", "verify", whole, "nope", damaged, file, other)
	b.out.content.Reset()
	b.mustRun(exitUsage, nil, "checkpoint", "verify", "--json", whole, "nope")
	var reports []orchestrator.CheckpointReport
	if err := json.Unmarshal([]byte(b.out.String()), &reports); err != nil || len(reports) != 2 || reports[0].Tensors != 1 || len(reports[1].Problems) != 1 {
		t.Errorf("%v in %s", err, b.out)
	}
	b.mustRun(exitUsage, []string{"it is a file, and a checkpoint is a folder"}, "checkpoint", "export", file, "x.safetensors")
	b.mustRun(exitUsage, []string{"there is no such folder"}, "checkpoint", "export", "nope", "x.safetensors")
	b.mustRun(exitUsage, []string{file + " is a file, and neither a folder nor a run"}, "checkpoint", "ls", file)
}

// What is asked to end says what it was at; an export leaves nothing of what it has begun.
func TestCheckpointCommandsThatAreStopped(t *testing.T) {
	b := newBench(t)
	whole, slow := b.folder("whole"), b.folder("slow", "slow")
	b.out.on("is whole", func() { b.signal(unix.SIGTERM) })
	b.mustRun(exitSignal+int(unix.SIGTERM), []string{whole + " is whole", "cephalorun: stopped by SIGTERM while reading checkpoint " + slow + "\n"},
		"checkpoint", "verify", whole, slow)

	b = newBench(t)
	slow = b.folder("slow", "slow")
	out, aside := filepath.Join(b.dir, "m.safetensors"), filepath.Join(b.dir, ".m.safetensors.part")
	go func() {
		mustAppear(t, aside)
		b.signal(unix.SIGINT)
	}()
	b.mustRun(exitSignal+int(unix.SIGINT), []string{"stopped by SIGINT while writing " + out}, "checkpoint", "export", slow, out)
	if left, _ := filepath.Glob(filepath.Join(b.dir, "*m.safetensors*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(aside); err == nil {
		t.Error("what was begun is left")
	}
}

// mustAppear waits until there is a file.
func mustAppear(t *testing.T, path string) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Errorf("%s did not appear", path)
}
