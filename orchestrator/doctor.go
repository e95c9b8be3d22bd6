package orchestrator

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// Diagnose looks at everything that a run needs and says what it found. Fatal means
// that a run cannot start.
func Diagnose(ctx context.Context, spec Spec, deps Deps) []show.Check {
	devices, deviceCheck := checkDevices(ctx, spec, deps)
	return []show.Check{
		checkPython(ctx, spec, deps),
		deviceCheck,
		checkSharedMemory(sharedMemory("/dev/shm"), len(devices.Chosen)),
		checkMPS(devices, deps),
		checkState(spec),
	}
}

func checkPython(ctx context.Context, spec Spec, deps Deps) show.Check {
	p, err := PythonFinder{Flag: spec.Python, Environ: deps.Environ}.Find(ctx)
	if err != nil {
		return show.Check{Name: "python", Level: show.Fatal, Text: err.Error()}
	}
	return show.Check{Name: "python", Text: fmt.Sprintf("%s (Python %s, PyTorch %s, from %s)", p.Path, p.Version, p.Torch, p.From)}
}

func checkDevices(ctx context.Context, spec Spec, deps Deps) (Devices, show.Check) {
	found, err := DeviceFinder{Spec: spec.Devices, Environ: deps.Environ, GPUs: deps.GPUs, CPU: deps.CPU}.Find(ctx)
	if err != nil {
		return found, show.Check{Name: "devices", Level: show.Fatal, Text: err.Error()}
	}
	text := ""
	for _, d := range found.Chosen {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s (%s)", d.Label(), show.Bytes(d.UsableMemoryBytes))
	}
	check := show.Check{Name: "devices", Text: text}
	if len(found.LeftOut) > 0 {
		check.Level, check.Text = show.Warning, text+"; left out: "+problemsOf(found.LeftOut)
	}
	return found, check
}

// sharedMemoryPerRank is what a rank's loaders and collectives may want of /dev/shm.
const sharedMemoryPerRank = 256 << 20

// space is a file system's size.
type space struct {
	path  string
	bytes int64
	err   error
}

func sharedMemory(path string) space {
	var stat unix.Statfs_t
	err := unix.Statfs(path, &stat)
	return space{path, int64(stat.Blocks) * int64(stat.Bsize), err}
}

// checkSharedMemory warns of the small /dev/shm of many containers (user case 43).
func checkSharedMemory(shm space, ranks int) show.Check {
	want := int64(max(1, ranks)) * sharedMemoryPerRank
	check := show.Check{Name: "shared memory", Text: fmt.Sprintf("%s has %s", shm.path, show.Bytes(shm.bytes))}
	switch {
	case shm.err != nil:
		check.Level, check.Text = show.Warning, fmt.Sprintf("%s: %v", shm.path, shm.err)
	case shm.bytes < want:
		check.Level, check.Text = show.Warning, fmt.Sprintf("%s; %d ranks want about %s: use --shm-size=1g or a memory emptyDir", check.Text, ranks, show.Bytes(want))
	}
	return check
}

func checkMPS(found Devices, deps Deps) show.Check {
	path, err := PythonFinder{Environ: deps.Environ}.look(launch.MPSControl)
	switch {
	case err == nil:
		return show.Check{Name: "parts of a GPU", Text: path}
	case launch.NeedsMPS(found.Chosen):
		return show.Check{Name: "parts of a GPU", Level: show.Fatal, Text: launch.MPSControl + " is not on the PATH"}
	default:
		return show.Check{Name: "parts of a GPU", Text: launch.MPSControl + " is not on the PATH; it is needed for sm_percent only"}
	}
}

func checkState(spec Spec) show.Check {
	if _, err := rundir.Open(spec.StateDir); err != nil {
		return show.Check{Name: "state folder", Level: show.Fatal, Text: err.Error()}
	}
	return show.Check{Name: "state folder", Text: spec.StateDir}
}
