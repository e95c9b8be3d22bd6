package orchestrator

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
	"github.com/cephalorun/cephalorun/profiler"
)

const (
	// mpsStartLimit is how long the control program may take to listen.
	mpsStartLimit = 20 * time.Second
	// mpsQuitLimit is how long it may take to end its server by itself.
	mpsQuitLimit = 5 * time.Second
	// mpsTick is the pause between two looks for its socket.
	mpsTick = 50 * time.Millisecond
)

// mps is a running private instance of CUDA MPS. It lives in a guarded tree of its
// own, so that it too ends with the supervisor.
type mps struct {
	launch.MPS
	control string
	environ []string
	tree    *supervise.Tree
}

// startMPS starts an instance for the GPUs that are cut into parts.
func startMPS(ctx context.Context, deps Deps, temp string, devices []profiler.Device) (*mps, error) {
	control, err := PythonFinder{Environ: deps.Environ}.look(launch.MPSControl)
	if err != nil {
		return nil, machine("parts of a GPU (sm_percent) need %s, which is not on the PATH", launch.MPSControl)
	}
	m := &mps{MPS: launch.MPSIn(temp), control: control}
	for _, dir := range []string{m.PipeDir, m.LogDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("start CUDA MPS: %w", err)
		}
	}
	m.environ = m.Environ(getenv(deps.Environ, "PATH"), gpusUnder(devices))
	m.tree, err = deps.Supervisor.Start(ctx, supervise.Command{
		Path: control, Args: []string{launch.MPSControl, "-f"}, Env: m.environ, Dir: "/",
	})
	if err != nil {
		return nil, fmt.Errorf("start CUDA MPS: %w", err)
	}
	if err := m.ready(ctx); err != nil {
		m.tree.Kill()
		return nil, err
	}
	return m, nil
}

// ready waits until the control program listens.
func (m *mps) ready(ctx context.Context) error {
	limit := time.NewTimer(mpsStartLimit)
	defer limit.Stop()
	tick := time.NewTicker(mpsTick)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(m.PipeDir, "control")); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-m.tree.Done():
			return machine("CUDA MPS ended at once (%s); its log is %s", m.tree.Outcome().Status, m.LogDir)
		case <-limit.C:
			return machine("CUDA MPS did not start within %s", mpsStartLimit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop ends the instance: politely first, since its server holds the GPU.
func (m *mps) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), mpsQuitLimit)
	defer cancel()
	quit := exec.CommandContext(ctx, m.control)
	quit.Env, quit.Stdin, quit.WaitDelay = m.environ, strings.NewReader("quit\n"), time.Second
	if quit.Run() == nil {
		select {
		case <-m.tree.Done():
			return
		case <-ctx.Done():
		}
	}
	m.tree.Stop(ctx, 0)
}

// gpusUnder are the GPUs under virtual devices, once each.
func gpusUnder(devices []profiler.Device) string {
	var gpus []string
	for _, d := range devices {
		if d.Virtual && d.GPUUUID != "" && !slices.Contains(gpus, d.GPUUUID) {
			gpus = append(gpus, d.GPUUUID)
		}
	}
	return strings.Join(gpus, ",")
}
