package cpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

const gib = int64(1) << 30

// tree writes a made-up proc and sys below a temporary root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func host(cores int) func(context.Context) (Facts, error) {
	return func(context.Context) (Facts, error) {
		return Facts{Model: "Xeon", Cores: cores, TotalBytes: 128 * gib, AvailableBytes: 100 * gib}, nil
	}
}

// User case 53: the limit of a container counts, and not the size of its host.
func TestUserCase53Budget(t *testing.T) {
	cases := map[string]struct {
		files   map[string]string
		free    int64
		total   int64
		source  string
		threads int
	}{
		"no cgroups at all": {files: nil, free: 100 * gib, total: 128 * gib, source: "host", threads: 16},
		"version 2, container of 4 GiB": {files: map[string]string{
			"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "4294967296", "sys/fs/cgroup/memory.current": "1073741824",
		}, free: 3 * gib, total: 4 * gib, source: "cgroup", threads: 16},
		"version 2, a parent is tighter": {files: map[string]string{
			"proc/self/cgroup":                     "0::/slice/unit",
			"sys/fs/cgroup/slice/unit/memory.max":  "max",
			"sys/fs/cgroup/slice/memory.max":       "8589934592",
			"sys/fs/cgroup/slice/memory.current":   "2147483648",
			"sys/fs/cgroup/slice/unit/cpu.max":     "250000 100000",
			"sys/fs/cgroup/slice/cpu.max":          "max 100000",
			"sys/fs/cgroup/slice/unit/memory.stat": "anon 5\ninactive_file 7",
		}, free: 6 * gib, total: 8 * gib, source: "cgroup", threads: 3},
		"version 2, parent used up by others": {files: map[string]string{
			"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "4294967296", "sys/fs/cgroup/a/b/memory.current": "0",
			"sys/fs/cgroup/a/memory.max": "8589934592", "sys/fs/cgroup/a/memory.current": "9000000000",
		}, free: 0, total: 4 * gib, source: "cgroup", threads: 16},
		"version 2, idle file pages are given up": {files: map[string]string{
			"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "4294967296", "sys/fs/cgroup/memory.current": "3221225472",
			"sys/fs/cgroup/memory.stat": "anon 100\ninactive_file 2147483648\nactive_file 4",
		}, free: 3 * gib, total: 4 * gib, source: "cgroup", threads: 16},
		"version 2, max": {files: map[string]string{
			"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/cpu.max": "max 100000",
		}, free: 100 * gib, total: 128 * gib, source: "host", threads: 16},
		"version 2, path of another namespace": {files: map[string]string{
			"proc/self/cgroup": "0::/../../kubepods/pod1", "sys/fs/cgroup/memory.max": "4294967296",
		}, free: 4 * gib, total: 4 * gib, source: "cgroup", threads: 16},
		"version 2, limit above the host": {files: map[string]string{
			"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "999999999999",
		}, free: 100 * gib, total: 128 * gib, source: "host", threads: 16},
		"version 1": {files: map[string]string{
			"proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n2:cpuset:/",
			"sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "4294967296", "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": "1073741824",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712",
			"sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us":  "200000",
			"sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000",
		}, free: 3 * gib, total: 4 * gib, source: "cgroup", threads: 2},
		"version 1, no limit is 2^63": {files: map[string]string{
			"proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854775808",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
		}, free: 100 * gib, total: 128 * gib, source: "host", threads: 16},
		"both versions": {files: map[string]string{
			"proc/self/cgroup": "4:memory:/x\n0::/y", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4294967296",
			"sys/fs/cgroup/unified/y/cgroup.procs": "1",
		}, free: 4 * gib, total: 4 * gib, source: "cgroup", threads: 16},
		"nonsense is no limit": {files: map[string]string{
			"proc/self/cgroup": "what\n0::/", "sys/fs/cgroup/memory.max": "lots", "sys/fs/cgroup/cpu.max": "1",
		}, free: 100 * gib, total: 128 * gib, source: "host", threads: 16},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			devices, err := Provider{Node: "n1", Root: tree(t, c.files), Facts: host(16)}.Devices(context.Background())
			if err != nil || len(devices) != 1 {
				t.Fatalf("got %v, %v", devices, err)
			}
			d := devices[0]
			if d.UsableMemoryBytes != c.free || d.MemoryBytes != c.total || d.MemorySource != c.source || d.Threads != c.threads {
				t.Errorf("got free %d of %d (%s), %d threads; want %d of %d (%s), %d", d.UsableMemoryBytes, d.MemoryBytes, d.MemorySource, d.Threads, c.free, c.total, c.source, c.threads)
			}
			if d.UUID != "CPU-n1" || d.Kind != profiler.KindCPU || d.Name != "Xeon" || d.Problem != "" {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestBudgetString(t *testing.T) {
	if got := (Budget{Bytes: 4 * gib, Source: "cgroup"}).String(); got != "4.0 GiB (cgroup)" {
		t.Errorf("got %q", got)
	}
}

func TestFactsFail(t *testing.T) {
	broken := errors.New("no proc")
	_, err := Provider{Facts: func(context.Context) (Facts, error) { return Facts{}, broken }}.Devices(context.Background())
	if !errors.Is(err, profiler.ErrCannotAsk) || !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestThisHost(t *testing.T) {
	devices, err := Provider{Node: "here"}.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	d := devices[0]
	if d.Threads < 1 || d.MemoryBytes <= 0 || d.UsableMemoryBytes <= 0 || d.UsableMemoryBytes > d.MemoryBytes || d.Name == "" {
		t.Errorf("got %+v", d)
	}
	if b, err := HostMemory(context.Background()); err != nil || b.Bytes <= 0 {
		t.Errorf("got %v, %v", b, err)
	}
}
