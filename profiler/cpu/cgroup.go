package cpu

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// noLimit is how version 1 writes "no limit": 2^63 rounded down to a page, or
// anything near it.
const noLimit = 1 << 60

// group is one cgroup: a folder below a mount, with its names for things.
type group struct {
	mount string // folder of the hierarchy
	path  string // of this process in it
	v2    bool
}

// groups finds the cgroups of this process that can limit what a controller
// ("memory", "cpu") gives. root is "/" but for tests.
func groups(root, controller string) []group {
	data, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	base := filepath.Join(root, "sys/fs/cgroup")
	var out []group
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		names := strings.Split(parts[1], ",")
		switch {
		case parts[0] == "0" && parts[1] == "":
			mount := base
			if isFolder(filepath.Join(base, "unified")) {
				mount = filepath.Join(base, "unified")
			}
			out = append(out, group{mount: mount, path: parts[2], v2: true})
		case has(names, controller):
			mount := filepath.Join(base, controller)
			if !isFolder(mount) {
				mount = filepath.Join(base, parts[1])
			}
			out = append(out, group{mount: mount, path: parts[2]})
		}
	}
	return out
}

// folders lists the cgroup and its parents up to the mount. A path that is not
// there belongs to another namespace: the mount itself is then our cgroup.
func (g group) folders() []string {
	clean := path.Clean("/" + g.path)
	if !isFolder(filepath.Join(g.mount, clean)) {
		clean = "/"
	}
	var out []string
	for {
		out = append(out, filepath.Join(g.mount, clean))
		if clean == "/" {
			return out
		}
		clean = path.Dir(clean)
	}
}

// memoryLeft is what the cgroups leave: limit is the least limit, left the
// least of limit minus use. Both are MaxInt64 without a limit.
func memoryLeft(root string) (limit, left int64) {
	limit, left = math.MaxInt64, math.MaxInt64
	for _, g := range groups(root, "memory") {
		maxName, useName, cacheName := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		if g.v2 {
			maxName, useName, cacheName = "memory.max", "memory.current", "inactive_file"
		}
		for _, folder := range g.folders() {
			most, ok := number(filepath.Join(folder, maxName))
			if !ok || most >= noLimit {
				continue
			}
			limit = min(limit, most)
			use, ok := number(filepath.Join(folder, useName))
			if !ok {
				use = 0
			}
			// File pages that nobody touched lately count as use, but are given
			// up as soon as memory is asked for.
			use = max(0, use-statistic(filepath.Join(folder, "memory.stat"), cacheName))
			left = min(left, max(0, most-use))
		}
	}
	return limit, left
}

// coresAllowed is the least processor quota of the cgroups, rounded up;
// MaxInt without one.
func coresAllowed(root string) int {
	least := math.MaxInt
	for _, g := range groups(root, "cpu") {
		for _, folder := range g.folders() {
			quota, period, ok := quotaOf(folder, g.v2)
			if ok && quota > 0 && period > 0 {
				least = min(least, int((quota+period-1)/period))
			}
		}
	}
	return least
}

func quotaOf(folder string, v2 bool) (quota, period int64, ok bool) {
	if !v2 {
		quota, ok = number(filepath.Join(folder, "cpu.cfs_quota_us"))
		period, _ = number(filepath.Join(folder, "cpu.cfs_period_us"))
		return quota, period, ok
	}
	data, err := os.ReadFile(filepath.Join(folder, "cpu.max"))
	if err != nil {
		return 0, 0, false
	}
	parts := strings.Fields(string(data))
	if len(parts) != 2 {
		return 0, 0, false
	}
	quota, err = strconv.ParseInt(parts[0], 10, 64) // "max" is no number
	if err != nil {
		return 0, 0, false
	}
	period, err = strconv.ParseInt(parts[1], 10, 64)
	return quota, period, err == nil
}

// number reads a file with one number; "max" and what is unreadable are none.
func number(file string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	text := strings.TrimSpace(string(data))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		// 2^63 and more, as some kernels write "no limit", is above noLimit.
		if u, err := strconv.ParseUint(text, 10, 64); err == nil && u > math.MaxInt64 {
			return math.MaxInt64, true
		}
		return 0, false
	}
	return n, true
}

// statistic reads one "name number" line; 0 when it is not there.
func statistic(file, name string) int64 {
	for _, line := range strings.Split(readText(file), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return max(0, n)
		}
	}
	return 0
}

// readText is a file's text; empty when it cannot be read.
func readText(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(data)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func has(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
