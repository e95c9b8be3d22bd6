package launch

import (
	"slices"
	"strings"
)

// Mode is what the workers do.
type Mode string

// The modes of a worker.
const (
	Train    Mode = "train"
	Profile  Mode = "profile"
	Hardware Mode = "hardware"
)

// Workers is what all workers of an attempt are told.
type Workers struct {
	Mode      Mode
	RunDir    string
	Plan      string // path
	Devices   string // path
	Socket    string // path
	Output    string // folder of the ranks' output pipes
	Weighting string // samples | tokens | mean
	Threads   int    // for a rank whose device does not say
	MPS       *MPS   // nil without
	KeepSlurm bool
	RunID     string
	// Restart counts the starts of this run before this one.
	Restart int
	// MustResume says that a script that begins again at step 1 is an error.
	MustResume bool
}

// owned are names that torchrun or this program sets for workers: a value of an
// outer launcher must not leak through.
var owned = []string{
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
	"ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
	"CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
	"CEPHALO_MODE", "CEPHALO_RUN_DIR", "CEPHALO_PLAN", "CEPHALO_DEVICES", "CEPHALO_SOCKET",
	"CEPHALO_OUTPUT", "CEPHALO_WEIGHTING", "CEPHALO_RUN_ID", "CEPHALO_RESTART_COUNT", "CEPHALO_MUST_RESUME",
}

// ownedPrefixes are families of such names. PET_ is how torchrun takes its own
// options from the environment.
var ownedPrefixes = []string{"TORCHELASTIC_", "PET_"}

// slurmPrefixes make libraries believe that Slurm started the workers (user case 41).
var slurmPrefixes = []string{"SLURM_", "SLURMD_", "PMI_", "PMIX_", "OMPI_"}

// Environ is the environment of torchrun and its workers, sorted: the user's own less
// what is ours to set, and what is ours.
func Environ(user []string, w Workers) []string {
	set := map[string]string{}
	for _, entry := range user {
		name, value, ok := strings.Cut(entry, "=")
		if ok && name != "" && !hidden(name, w.KeepSlurm) {
			set[name] = value
		}
	}
	if set["PYTHONUNBUFFERED"] == "" {
		set["PYTHONUNBUFFERED"] = "1"
	}
	if set["OMP_NUM_THREADS"] == "" { // the user's is kept (user case 44)
		set["OMP_NUM_THREADS"] = itoa(max(1, w.Threads))
	}
	if set[allocConf[0]] == "" && set[allocConf[1]] == "" { // the user's is kept
		for _, name := range allocConf {
			set[name] = wholeSegments
		}
	}
	for name, value := range w.own() {
		if value != "" {
			set[name] = value
		}
	}
	list := make([]string, 0, len(set))
	for name, value := range set {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// allocConf are the variables that PyTorch's CUDA allocator reads: the newer one,
// and the one that PyTorch up to 2.8 knows alone.
var allocConf = [...]string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}

// wholeSegments lets the allocator extend a segment in place of making another, so
// that a plan which fills a device is not lost to what lies between the segments.
const wholeSegments = "expandable_segments:True"

func (w Workers) own() map[string]string {
	own := map[string]string{
		"CEPHALO_MODE": string(w.Mode), "CEPHALO_RUN_DIR": w.RunDir, "CEPHALO_PLAN": w.Plan,
		"CEPHALO_DEVICES": w.Devices, "CEPHALO_SOCKET": w.Socket, "CEPHALO_OUTPUT": w.Output,
		"CEPHALO_WEIGHTING": w.Weighting, "CEPHALO_RUN_ID": w.RunID, "CEPHALO_RESTART_COUNT": itoa(w.Restart),
	}
	if w.MustResume {
		own["CEPHALO_MUST_RESUME"] = "1"
	}
	if w.MPS != nil {
		own["CUDA_MPS_PIPE_DIRECTORY"], own["CUDA_MPS_LOG_DIRECTORY"] = w.MPS.PipeDir, w.MPS.LogDir
	}
	return own
}

func hidden(name string, keepSlurm bool) bool {
	if slices.Contains(owned, name) || hasPrefix(name, ownedPrefixes) {
		return true
	}
	return !keepSlurm && hasPrefix(name, slurmPrefixes)
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
