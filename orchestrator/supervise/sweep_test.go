package supervise

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// User case 28: a process that no signal ends (state D) does not hold up the end; it is
// named, with its state, and left.
func TestUserCase28AProcessThatCannotBeKilled(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), standIn+"=helper")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	p, err := ReadProcess(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	const limit = 100 * time.Millisecond
	tried, began := 0, time.Now()
	left, err := sweep(func() ([]Process, error) { return []Process{p}, nil }, func([]Process) { tried++ }, func([]Process) {}, limit)
	if err != nil || len(left) != 1 || left[0].PID != p.PID || left[0].State == "" {
		t.Errorf("left %v, %v", left, err)
	}
	if took := time.Since(began); took < limit || took > 20*limit || tried < 2 {
		t.Errorf("took %s, tried %d times", took, tried)
	}
}
