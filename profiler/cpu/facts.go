package cpu

import (
	"context"
	"fmt"
	"runtime"

	hostcpu "github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/mem"
)

// Facts is what the host says about itself, limits of containers aside.
type Facts struct {
	Model          string
	Cores          int // that this process may run on
	TotalBytes     int64
	AvailableBytes int64
}

// HostFacts asks the machine.
func HostFacts(ctx context.Context) (Facts, error) {
	memory, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Facts{}, fmt.Errorf("read host memory: %w", err)
	}
	f := Facts{
		Model:          runtime.GOARCH,
		Cores:          runtime.NumCPU(), // counts the affinity mask only
		TotalBytes:     int64(memory.Total),
		AvailableBytes: int64(memory.Available),
	}
	// The model is for reading; a host that hides it is no failure.
	if infos, err := hostcpu.InfoWithContext(ctx); err == nil && len(infos) > 0 && infos[0].ModelName != "" {
		f.Model = infos[0].ModelName
	}
	return f, nil
}
