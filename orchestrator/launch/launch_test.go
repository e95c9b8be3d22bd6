package launch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cephalorun/cephalorun/profiler"
)

func TestArgvKeepsEveryArgument(t *testing.T) {
	args := []string{"--lr", "0.1", "--name", "two words", "-x", "--", "--nnodes", "$HOME", ""}
	argv := Torchrun{Python: "/py", Launcher: "/l.py", Shim: "/s.py", RunID: "r-1", Ranks: 3,
		Script: `/mein Modell (v2) $x 'é/train.py`, Args: args}.Argv()
	if !slices.Equal(argv[len(argv)-len(args):], args) {
		t.Errorf("arguments changed: %q", argv)
	}
	at := slices.Index(argv, "/s.py")
	if at < 0 || argv[at+1] != `/mein Modell (v2) $x 'é/train.py` {
		t.Errorf("script is not the shim's first argument: %q", argv)
	}
	for _, pair := range [][2]string{{"--max-restarts", "0"}, {"--nproc-per-node", "3"}, {"--rdzv-endpoint", "127.0.0.1:0"}, {"--rdzv-id", "r-1"}} {
		if i := slices.Index(argv[:at], pair[0]); i < 0 || argv[i+1] != pair[1] {
			t.Errorf("%s is not %s in %q", pair[0], pair[1], argv)
		}
	}
}

func lookup(list []string, name string) (string, bool) {
	for _, e := range list {
		if n, v, _ := strings.Cut(e, "="); n == name {
			return v, true
		}
	}
	return "", false
}

func TestEnviron(t *testing.T) {
	base := Workers{Mode: Train, RunDir: "/run", Plan: "/run/plan.json", Devices: "/run/devices.json",
		Socket: "/tmp/s", Output: "/tmp/o", Weighting: "samples", Threads: 4}
	withMPS, keep := base, base
	withMPS.MPS, keep.KeepSlurm = &MPS{PipeDir: "/tmp/mps", LogDir: "/tmp/mps-log"}, true
	cases := map[string]struct {
		user []string
		w    Workers
		want map[string]string // "-" means absent
	}{
		"ours are set": {nil, base, map[string]string{"CEPHALO_MODE": "train", "CEPHALO_SOCKET": "/tmp/s",
			"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "4", "CUDA_MPS_PIPE_DIRECTORY": "-", "PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
		"user case 44: the user's thread count is kept": {[]string{"OMP_NUM_THREADS=7"}, base, map[string]string{"OMP_NUM_THREADS": "7"}},
		"the allocator settings of the user are kept":   {[]string{"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"}, base, map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_ALLOC_CONF": "-"}},
		"user case 75: the user's buffering is kept":    {[]string{"PYTHONUNBUFFERED=0"}, base, map[string]string{"PYTHONUNBUFFERED": "0"}},
		"an outer launcher does not leak through": {[]string{"RANK=3", "WORLD_SIZE=9", "MASTER_PORT=29500", "PET_NNODES=2", "TORCHELASTIC_RUN_ID=none", "CUDA_VISIBLE_DEVICES=1"}, base,
			map[string]string{"RANK": "-", "WORLD_SIZE": "-", "MASTER_PORT": "-", "PET_NNODES": "-", "TORCHELASTIC_RUN_ID": "-", "CUDA_VISIBLE_DEVICES": "-"}},
		"the rest is passed on": {[]string{"WANDB_API_KEY=secret", "A=b=c", "EMPTY="}, base, map[string]string{"WANDB_API_KEY": "secret", "A": "b=c", "EMPTY": ""}},
		"a stale name of ours is dropped": {[]string{"CEPHALO_PLAN=/old", "CEPHALO_PROFILE_SECONDS=9"}, base,
			map[string]string{"CEPHALO_PLAN": "/run/plan.json", "CEPHALO_PROFILE_SECONDS": "9"}},
		"parts of a GPU": {nil, withMPS, map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/mps-log"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Environ(c.user, c.w)
			if !slices.IsSorted(got) {
				t.Error("not sorted")
			}
			for n, want := range c.want {
				if v, ok := lookup(got, n); ok != (want != "-") || (ok && v != want) {
					t.Errorf("%s is %q (%v), want %q", n, v, ok, want)
				}
			}
		})
	}
}

// User case 41: whatever Slurm says to us, the workers get one consistent set from
// torchrun, unless its own is asked for.
func TestUserCase41SlurmIsHidden(t *testing.T) {
	for name, user := range map[string][]string{
		"sbatch":              {"SLURM_JOB_ID=5", "SLURM_NTASKS=4", "SLURM_NTASKS_PER_NODE=2", "SLURM_PROCID=0", "SLURM_LOCALID=0"},
		"salloc and srun":     {"SLURM_JOB_ID=5", "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_ID=0", "SLURM_LAUNCH_NODE_IPADDR=1.2.3.4"},
		"srun --pty":          {"SLURM_PTY_PORT=33", "SLURM_PTY_WIN_COL=80", "SLURM_NTASKS=1", "PMI_RANK=0", "PMIX_RANK=0"},
		"a task for each GPU": {"SLURM_PROCID=3", "SLURM_LOCALID=3", "SLURM_GPUS_PER_TASK=1", "SLURMD_NODENAME=n1"},
	} {
		for _, entry := range Environ(user, Workers{}) {
			if strings.HasPrefix(entry, "SLURM") || strings.HasPrefix(entry, "PMI") {
				t.Errorf("%s: the workers see %s", name, entry)
			}
		}
		kept := Environ(user, Workers{KeepSlurm: true})
		for _, entry := range user {
			if !slices.Contains(kept, entry) {
				t.Errorf("%s: %s is hidden though it was asked for", name, entry)
			}
		}
	}
}

func TestUserCase44Cores(t *testing.T) {
	cases := map[string]struct {
		files    map[string]string
		affinity int
		want     int
	}{
		"no control group":    {nil, 8, 8},
		"version 2":           {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "200000 100000\n"}, 64, 2},
		"a parent's quota":    {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "350000 100000\n"}, 64, 4},
		"version 1":           {map[string]string{"proc/self/cgroup": "4:cpu,cpuacct:/d\n0::/\n", "sys/fs/cgroup/cpu/d/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/d/cpu.cfs_period_us": "100000\n"}, 64, 3},
		"version 1, no limit": {map[string]string{"proc/self/cgroup": "4:cpu:/d\n", "sys/fs/cgroup/cpu/d/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/d/cpu.cfs_period_us": "100000\n"}, 5, 5},
		"less than one core":  {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 64, 1},
		"nonsense":            {map[string]string{"proc/self/cgroup": "what\n0::/\n", "sys/fs/cgroup/cpu.max": "x y\n"}, 6, 6},
	}
	for name, c := range cases {
		fsys := fstest.MapFS{}
		for path, text := range c.files {
			fsys[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := ReadCores(fsys, c.affinity); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := ThreadsPerRank(2, 2); got != 1 {
		t.Errorf("2 cores for 2 ranks: %d threads", got)
	}
	if got := ThreadsPerRank(2, 8); got != 1 {
		t.Errorf("2 cores for 8 ranks: %d threads", got)
	}
}

func TestEntries(t *testing.T) {
	devices := []profiler.Device{
		{UUID: "GPU-a", GPUUUID: "GPU-a", Name: "H200", Kind: profiler.KindCUDA, MemoryBytes: 99},
		{UUID: "virtual-big", GPUUUID: "GPU-a", Name: "big", Kind: profiler.KindCUDA, Virtual: true, SMPercent: 40, MemoryBytes: 5},
		{UUID: "MIG-x", GPUUUID: "GPU-a", Kind: profiler.KindCUDA, MIG: true, MemoryBytes: 7},
		{UUID: "virtual-slow", Name: "slow", Kind: profiler.KindCPU, Virtual: true, Threads: 1, Slowdown: 3, MemoryBytes: 8},
		{UUID: "CPU-x", Kind: profiler.KindCPU, Threads: 64, MemoryBytes: 9},
	}
	got := Entries(devices, 2).Devices
	want := []Entry{
		{Rank: 0, Name: "H200", Kind: "cuda", UUID: "GPU-a", GPUUUID: "GPU-a", Threads: 2, Slowdown: 1},
		{Rank: 1, Name: "big", Kind: "cuda", UUID: "virtual-big", GPUUUID: "GPU-a", Threads: 2, Slowdown: 1, SMPercent: 40, Virtual: true, Alone: true, MemoryBytes: 5},
		{Rank: 2, Kind: "cuda", UUID: "MIG-x", GPUUUID: "MIG-x", Threads: 2, Slowdown: 1, Alone: true},
		{Rank: 3, Name: "slow", Kind: "cpu", UUID: "virtual-slow", Threads: 1, Slowdown: 3, Virtual: true, MemoryBytes: 8},
		{Rank: 4, Kind: "cpu", UUID: "CPU-x", Threads: 2, Slowdown: 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	path := filepath.Join(t.TempDir(), "devices.json")
	if err := Entries(devices, 2).Write(path); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	var back DevicesFile
	if err := json.Unmarshal(data, &back); err != nil || back.Version != 1 || len(back.Devices) != 5 {
		t.Errorf("%+v, %v", back, err)
	}
	if !NeedsMPS(devices) || NeedsMPS(devices[:1]) {
		t.Error("MPS is needed for a limited part of a GPU, and for nothing else")
	}
}
