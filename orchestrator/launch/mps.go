package launch

import (
	"path/filepath"

	"github.com/cephalorun/cephalorun/profiler"
)

// MPSControl is the program that shares a GPU between processes.
const MPSControl = "nvidia-cuda-mps-control"

// MPS is a private instance of CUDA MPS: its folders keep it apart from any other.
type MPS struct {
	PipeDir string
	LogDir  string
}

// NeedsMPS says whether some device is a limited part of a GPU.
func NeedsMPS(devices []profiler.Device) bool {
	for _, d := range devices {
		if d.Kind == profiler.KindCUDA && d.SMPercent > 0 {
			return true
		}
	}
	return false
}

// MPSIn names the folders of an instance. The path must be short: MPS opens sockets
// in it.
func MPSIn(tempDir string) MPS {
	return MPS{PipeDir: filepath.Join(tempDir, "mps"), LogDir: filepath.Join(tempDir, "mps-log")}
}

// Environ is the environment of the MPS control program, which is not told more
// than it needs. gpus are the GPUs that it shares.
func (m MPS) Environ(path string, gpus string) []string {
	return []string{
		"CUDA_MPS_LOG_DIRECTORY=" + m.LogDir,
		"CUDA_MPS_PIPE_DIRECTORY=" + m.PipeDir,
		"CUDA_VISIBLE_DEVICES=" + gpus,
		"PATH=" + path,
	}
}
