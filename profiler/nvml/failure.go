package nvml

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/cephalorun/cephalorun/profiler"
)

// initFailure tells "there is none" from "could not ask". A library whose
// kernel part is not loaded is an answer only where there is no card.
func (p Provider) initFailure(ret api.Return) error {
	switch ret {
	case api.ERROR_LIBRARY_NOT_FOUND:
		if p.hasCard() {
			return fmt.Errorf("%w: an NVIDIA card is present, but its driver is not installed (libnvidia-ml.so.1 was not found)", profiler.ErrNoDriver)
		}
		return fmt.Errorf("%w (libnvidia-ml.so.1 was not found)", profiler.ErrNoDriver)
	case api.ERROR_DRIVER_NOT_LOADED:
		if p.hasCard() {
			return fmt.Errorf("%w: an NVIDIA card is present, but its kernel driver is not loaded: %w", profiler.ErrCannotAsk, ret)
		}
		return fmt.Errorf("%w: its kernel part is not loaded and there is no NVIDIA card", profiler.ErrNoDriver)
	case api.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%w: the NVIDIA library and kernel driver are of different versions (restart the machine after a driver update): %w", profiler.ErrCannotAsk, ret)
	default:
		return fmt.Errorf("%w: start NVML: %w", profiler.ErrCannotAsk, ret)
	}
}

// hasCard looks for an NVIDIA display or 3D controller on the PCI bus.
func (p Provider) hasCard() bool {
	vendors, err := filepath.Glob(filepath.Join(cmp.Or(p.Root, "/"), "sys/bus/pci/devices/*/vendor"))
	if err != nil {
		return false
	}
	for _, vendor := range vendors {
		if text(vendor) == "0x10de" && strings.HasPrefix(text(filepath.Join(filepath.Dir(vendor), "class")), "0x03") {
			return true
		}
	}
	return false
}

func text(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// clause says what is wrong with a device, to follow "GPU 2".
func clause(doing string, ret api.Return) string {
	switch ret {
	case api.ERROR_GPU_IS_LOST:
		return "is lost: it fell off the bus or cannot be reached"
	case api.ERROR_RESET_REQUIRED:
		return "needs a reset before it can be used again"
	case api.ERROR_NO_PERMISSION:
		return "may not be used by this user"
	default:
		return fmt.Sprintf("cannot be used: %s: %v", doing, ret)
	}
}
