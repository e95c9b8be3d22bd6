package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const exitReader = exitSignal + int(unix.SIGPIPE)

// unread is a standard output whose reader has gone.
func (b *bench) unread() *os.File {
	b.t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	_ = reader.Close()
	b.t.Cleanup(func() { _ = writer.Close() })
	return writer
}

// Whatever only prints ends quietly and alike when its reader goes away; a run goes on.
func TestAReaderThatGoesAwayEndsWhatOnlyPrints(t *testing.T) {
	surviveReaders()
	b := newBench(t)
	script := b.file("train.py", goodScript)
	b.mustRun(exitDone, nil, "--devices", b.devices(), script)
	run, err := filepath.EvalSymlinks(filepath.Join(b.dir, "state", "runs", "latest"))
	if err != nil {
		t.Fatal(err)
	}
	id, checkpoint := filepath.Base(run), b.folder("checkpoint", ".metadata")
	b.app.stdout = b.unread()
	for name, args := range map[string][]string{
		"nothing":          {},
		"help":             {"help", "plan"},
		"--help":           {"logs", "--help"},
		"completion":       {"completion", "bash"},
		"version":          {"version"},
		"devices":          {"devices", "--devices", b.devices()},
		"runs":             {"runs"},
		"runs as JSON":     {"runs", "--json"},
		"status":           {"status"},
		"logs":             {"logs", id},
		"logs -f":          {"logs", "-f", id},
		"checkpoint":       {"checkpoint"},
		"checkpoint ls":    {"checkpoint", "ls", checkpoint},
		"verify":           {"checkpoint", "verify", checkpoint},
		"verify as JSON":   {"checkpoint", "verify", "--json", checkpoint},
		"export":           {"checkpoint", "export", checkpoint, filepath.Join(b.dir, "m.safetensors")},
		"plan":             {"plan", "--profile", plannerCase, "--global-batch", "128"},
		"plan of a script": {"plan", "--devices", b.devices(), script},
		"profile":          {"profile", "--devices", b.devices(), script},
		"simulate":         simulateFiles("../../examples/clusters/paper-a.yaml", "../../examples/models/gpt-2.7b.yaml"),
	} {
		t.Run(name, func(t *testing.T) {
			b.err.content.Reset()
			if got := b.run(args...); got != exitReader || strings.Contains(b.err.String(), "cephalorun:") || strings.Contains(b.err.String(), "pipe") {
				t.Errorf("exit code %d, want %d: %s", got, exitReader, b.err)
			}
		})
	}
	b.mustRun(exitDone, []string{"done after 12 steps"}, "--devices", b.devices(), script)
	damaged := b.folder("damaged", "shard")
	b.mustRun(exitUsage, []string{damaged + " is not whole"}, "checkpoint", "verify", "--json", damaged)
}

// Nothing is printed any more, and the reader is missed all the same.
func TestAReaderThatGoesAwayEndsLogsThatAreFollowed(t *testing.T) {
	surviveReaders()
	b := newBench(t)
	follower := newBench(t)
	follower.dir = b.dir
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	follower.app.stdout = writer
	code := make(chan int, 1)
	var once sync.Once
	b.out.on("waiting", func() {
		once.Do(func() { go func() { code <- follower.run("logs", "-f") }() })
		if _, err := io.ReadAtLeast(reader, make([]byte, 1000), len("waiting")); err != nil {
			t.Error(err)
		}
		_ = reader.Close()
		if got := <-code; got != exitReader || follower.err.String() != "" {
			t.Errorf("exit code %d: %s", got, follower.err)
		}
		b.signal(unix.SIGINT)
	})
	b.mustRun(exitSignal+int(unix.SIGINT), nil, "--devices", b.devices(), b.file("train.py", "measure float32\nsteps 1\nwait\n"))
}
