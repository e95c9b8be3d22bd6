package launch

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ThreadsPerRank shares the cores between the ranks, at least one each.
func ThreadsPerRank(cores, ranks int) int { return max(1, cores/max(1, ranks)) }

// ReadCores is how many cores this process may use: those it may run on, less when
// its control group has a quota. root is the file system ("/").
func ReadCores(root fs.FS, affinity int) int {
	cores := affinity
	for _, quota := range quotas(root) {
		if n := int(math.Ceil(quota)); n > 0 && n < cores {
			cores = n
		}
	}
	return max(1, cores)
}

// quotas are the processor quotas, in cores, of our control group and its parents.
func quotas(root fs.FS) []float64 {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var all []float64
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		group := path.Clean("/" + parts[2])
		for {
			if parts[1] == "" {
				all = append(all, unifiedQuota(root, group))
			} else if strings.Contains(","+parts[1]+",", ",cpu,") {
				all = append(all, legacyQuota(root, group))
			}
			if group == "/" {
				break
			}
			group = path.Dir(group)
		}
	}
	return all
}

// unifiedQuota reads cpu.max of a version 2 group: "200000 100000" is two cores.
func unifiedQuota(root fs.FS, group string) float64 {
	data, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", group, "cpu.max"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return 0
	}
	return ratio(fields[0], fields[1])
}

// legacyQuota reads the two files of a version 1 group.
func legacyQuota(root fs.FS, group string) float64 {
	dir := path.Join("sys/fs/cgroup/cpu", group)
	quota, err := fs.ReadFile(root, path.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0
	}
	period, err := fs.ReadFile(root, path.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0
	}
	return ratio(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
}

// ratio is 0 for "max", -1 and everything else that is no quota.
func ratio(quota, period string) float64 {
	q, err := strconv.ParseFloat(quota, 64)
	if err != nil || q <= 0 {
		return 0
	}
	p, err := strconv.ParseFloat(period, 64)
	if err != nil || p <= 0 {
		return 0
	}
	return q / p
}
