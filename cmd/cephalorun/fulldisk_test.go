package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A log that cannot be written is named at once, and what it lacks is counted at the end.
func TestALogThatIsCutIsNamed(t *testing.T) {
	b := newBench(t)
	b.mustRun(exitDone, []string{
		"note: a file in the run's folder cannot be written: write ", "rank-1.log: no space left on device; the training goes on",
		"note: lines that the ranks printed and that are not in their logs: 2 (write ",
	}, "--devices", b.devices(), b.file("train.py", "full-log 1\nmeasure float32\nprint one\nsteps 3\nprint two\n"))
	if n := strings.Count(b.err.String(), "cannot be written"); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.err)
	}
}

// smallDisk makes the test binary the program on a small disk, which is gone with it.
const smallDisk = "FAKE_SMALL_DISK"

// fakeSmallDisk runs a command line, and then status, with the state folder on a small disk.
func fakeSmallDisk(state string, args []string) int {
	if err := unix.Mount("small", state, "tmpfs", 0, "size=2m"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitNoMount
	}
	code := fakeMain(args)
	fakeMain([]string{"--state-dir", state, "status"})
	_, err := os.Stat(filepath.Join(state, "runs", "latest", ".reserve"))
	fmt.Println("reserve is gone:", errors.Is(err, os.ErrNotExist))
	return code
}

// exitNoMount says within this file that no disk could be made.
const exitNoMount = 99

// The disk of the run's folder is full: the training goes on, and how it ended is known afterwards.
func TestAFullDiskKeepsHowTheRunEnded(t *testing.T) {
	for script, c := range map[string]struct {
		code int
		says []string
	}{
		"steps 9\nprint more\n":            {exitDone, []string{": done\n", "done after 9 steps"}},
		"steps 9\nfail 1 ValueError bad\n": {exitScript, []string{": failed\n", "after step 9: ValueError: bad"}},
	} {
		b := newBench(t)
		state := b.folder("state")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c2 := exec.CommandContext(ctx, "/proc/self/exe", "--state-dir", state, "--devices", b.devices(),
			b.file("train.py", "measure float32\nsteps 3\nfill\n"+script))
		c2.Env = append(os.Environ(), mainRole+"=1", smallDisk+"="+state, fakeTorch+"=2.15.0", "PATH=/nowhere", "CEPHALO_PYTHON="+executable(t))
		c2.Dir = b.dir
		c2.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		var text bytes.Buffer
		c2.Stdout, c2.Stderr = &text, &text
		err := c2.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || exit != nil && exit.ExitCode() == exitNoMount {
			t.Skipf("no small disk can be made here: %v %s", err, &text)
		}
		if got := c2.ProcessState.ExitCode(); got != c.code {
			t.Errorf("exit code %d, want %d:\n%s", got, c.code, &text)
		}
		for _, says := range append(c.says, "no space left on device; the training goes on", "reserve is gone: true") {
			if !strings.Contains(text.String(), says) {
				t.Errorf("%q is not in:\n%s", says, &text)
			}
		}
	}
}
