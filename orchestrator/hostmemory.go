package orchestrator

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// readOOMKills is how many processes of our control group the kernel has ended for
// want of memory so far; 0 when it does not say, so that a kill is never taken for one.
func readOOMKills(root fs.FS) int64 {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var file string
		switch {
		case parts[1] == "":
			file = path.Join("sys/fs/cgroup", parts[2], "memory.events")
		case strings.Contains(","+parts[1]+",", ",memory,"):
			file = path.Join("sys/fs/cgroup/memory", parts[2], "memory.oom_control")
		default:
			continue
		}
		if n, ok := counter(root, file, "oom_kill"); ok {
			return n
		}
	}
	return 0
}

// counter reads "name number" out of a file of such lines.
func counter(root fs.FS, file, name string) (int64, bool) {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	for _, line := range strings.Split(string(data), "\n") {
		if n, value, ok := strings.Cut(line, " "); ok && n == name {
			number, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return number, err == nil
		}
	}
	return 0, false
}
