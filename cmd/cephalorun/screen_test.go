package main

import (
	"io"
	"testing"
	"time"
)

// A reader of standard output and standard error that reads nothing, as a stopped pager,
// holds up neither the training nor its end.
func TestAScreenThatIsNotReadHoldsNoRunUp(t *testing.T) {
	b := newBench(t)
	reader, writer := io.Pipe() // takes nothing until it is closed
	defer func() { _ = reader.Close() }()
	b.app.stdout, b.app.stderr = writer, writer
	code := make(chan int, 1)
	go func() {
		code <- b.run("--devices", b.devices(), b.file("train.py", "measure float32\nsteps 5\nfail 1 ValueError no\n"))
	}()
	select {
	case got := <-code:
		if got != exitScript {
			t.Errorf("exit code %d, want %d", got, exitScript)
		}
	case <-time.After(time.Minute):
		t.Fatal("the run waits for its screen")
	}
	if steps := b.journal("step", "step"); len(steps) != 10 {
		t.Errorf("steps in the journal: %v", steps)
	}
}
