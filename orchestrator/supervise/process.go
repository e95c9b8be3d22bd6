package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one process as /proc shows it. PID together with StartTicks names
// it for good: a pid alone is given to another process after its death.
type Process struct {
	PID        int    `json:"pid"`
	Parent     int    `json:"parent"`
	Session    int    `json:"session"`
	State      string `json:"state"` // one letter: R, S, D, Z, T, ...
	StartTicks uint64 `json:"start_ticks"`
	Name       string `json:"name"` // for messages only
}

// String names the process for a person.
func (p Process) String() string {
	return fmt.Sprintf("pid %d (%s, state %s)", p.PID, p.Name, p.State)
}

// dead says that nothing of the process runs any more.
func (p Process) dead() bool { return p.State == "Z" || p.State == "X" }

// ReadProcess asks the kernel about one process. The error is os.ErrNotExist
// when there is none of that pid.
func ReadProcess(pid int) (Process, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			err = os.ErrNotExist
		}
		return Process{}, err
	}
	return parseStat(data)
}

// parseStat reads /proc/PID/stat. The name stands in parentheses and may itself
// hold parentheses and blanks, so the fields are counted from the last one.
func parseStat(data []byte) (Process, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return Process{}, fmt.Errorf("read process state: no name in %.80q", data)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(data[:open])))
	if err != nil {
		return Process{}, fmt.Errorf("read process state: %w", err)
	}
	const parent, session, start = 1, 3, 19
	fields := bytes.Fields(data[end+1:])
	if len(fields) <= start {
		return Process{}, fmt.Errorf("read process state: %d fields after the name of %d", len(fields), pid)
	}
	p := Process{PID: pid, Name: string(data[open+1 : end]), State: string(fields[0])}
	var errs [3]error
	p.Parent, errs[0] = strconv.Atoi(string(fields[parent]))
	p.Session, errs[1] = strconv.Atoi(string(fields[session]))
	p.StartTicks, errs[2] = strconv.ParseUint(string(fields[start]), 10, 64)
	return p, errors.Join(errs[:]...)
}

// Alive says whether exactly this process, and not a later one of the same pid,
// still runs.
func Alive(pid int, startTicks uint64) bool {
	p, err := ReadProcess(pid)
	return err == nil && p.StartTicks == startTicks && !p.dead()
}

// snapshot lists all processes in order of their pids.
func snapshot() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := ReadProcess(pid); err == nil { // gone meanwhile: not there
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return a.PID - b.PID })
	return all, nil
}

// descendants lists everything below root, parents before children.
func descendants(all []Process, root int) []Process {
	children := map[int][]Process{}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var below []Process
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			if !seen[p.PID] {
				seen[p.PID] = true
				below = append(below, p)
				queue = append(queue, p.PID)
			}
		}
	}
	return below
}

// Descendants lists the live processes below root.
func Descendants(root int) ([]Process, error) {
	all, err := snapshot()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(descendants(all, root), Process.dead), nil
}

// Signal sends a signal to exactly this process. A process that is gone, or whose
// pid belongs to another one by now, is no error.
func (p Process) Signal(signal unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err == nil {
		defer unix.Close(fd)
	}
	now, readErr := ReadProcess(p.PID)
	if errors.Is(readErr, os.ErrNotExist) || (readErr == nil && now.StartTicks != p.StartTicks) {
		return nil
	}
	if err == nil {
		err = unix.PidfdSendSignal(fd, signal, nil, 0)
	} else { // a kernel without process descriptors
		err = unix.Kill(p.PID, signal)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %s: %w", p, err)
	}
	return nil
}

// sweepTick is the pause between two looks at the process table while it is swept.
const sweepTick = 10 * time.Millisecond
