package orchestrator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/pyshim"
)

// checkpointTask is what the interpreter runs; the arguments follow.
const checkpointTask = `
import sys
sys.path.insert(0, sys.argv[1])
from cephalo.checkpoint_export import main
sys.exit(main(sys.argv[2:]))
`

const (
	// tellAfter is how long a look at checkpoints may take without a word, and tellEvery the
	// pause between two words after that.
	tellAfter = 2 * time.Second
	tellEvery = 10 * time.Second
)

// checkpointLine is what the interpreter prints, one to a line: how far it is, or a report.
type checkpointLine struct {
	Done   int64             `json:"done"`
	Of     int64             `json:"of"`
	Report *CheckpointReport `json:"report"`
}

// run asks the interpreter, which answers with so many reports. doing is what it is at.
func (t CheckpointTool) run(ctx context.Context, want int, doing func() string, each func(CheckpointReport), args ...string) error {
	if want == 0 {
		return nil
	}
	dir, err := tempDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := pyshim.Extract(dir); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, t.Python.Path, append([]string{"-c", checkpointTask, dir}, args...)...)
	c.Dir, c.WaitDelay = "/", time.Second
	c.Env = append(t.Environ[:len(t.Environ):len(t.Environ)], "CUDA_VISIBLE_DEVICES=")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is ours to say something about
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return machine("read checkpoint: %w", err)
	}
	if err := c.Start(); err != nil {
		return machine("read checkpoint: %w", err)
	}
	got, answer := t.follow(linesOf(out), doing, each)
	err = c.Wait()
	switch {
	case ctx.Err() != nil:
		return stoppedWhile(ctx, doing())
	case err != nil && said.Len() > 0:
		return machine("read checkpoint: %w: %s", err, lastLine(said.String()))
	case err != nil:
		return machine("read checkpoint: %w", err)
	case answer != nil:
		return machine("read checkpoint: %w", answer)
	case got != want:
		return machine("read checkpoint: %d answers for %d questions", got, want)
	}
	return nil
}

// linesOf are the lines of a stream, to its end.
func linesOf(in io.Reader) <-chan []byte {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for from := bufio.NewReader(in); ; {
			line, err := from.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// follow hands reports on, and says now and then what is being done.
func (t CheckpointTool) follow(lines <-chan []byte, doing func() string, each func(CheckpointReport)) (got int, wrong error) {
	after, every := tellAfter, tellEvery
	if t.tellAfter > 0 {
		after, every = t.tellAfter, t.tellAfter
	}
	tick := time.NewTimer(after)
	defer tick.Stop()
	var newest checkpointLine
	for {
		select {
		case line, open := <-lines:
			if !open {
				return got, wrong
			}
			var told checkpointLine
			if err := json.Unmarshal(line, &told); err != nil {
				wrong = fmt.Errorf("the answer is %.80q: %w", line, err)
				continue
			}
			if newest = told; told.Report != nil {
				each(*told.Report)
				got, newest = got+1, checkpointLine{}
			}
		case <-tick.C:
			tick.Reset(every)
			if t.Tell != nil {
				t.Tell("still " + doing() + newest.text())
			}
		}
	}
}

// text is how far it is, to stand behind what is being done.
func (l checkpointLine) text() string {
	if l.Of <= 0 {
		return ""
	}
	return fmt.Sprintf(": %s of %s (%d %%)", show.Bytes(l.Done), show.Bytes(l.Of), 100*l.Done/l.Of)
}

// stoppedWhile is the end by a signal while something was done that is no training.
func stoppedWhile(ctx context.Context, doing string) error {
	var stopped *StoppedError
	if cause := context.Cause(ctx); !errors.As(cause, &stopped) {
		return cause
	}
	return &StoppedError{Signal: stopped.Signal, Doing: doing}
}
