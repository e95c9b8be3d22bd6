package nvml

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/cephalorun/cephalorun/profiler"
)

// Defaults of a Provider.
const (
	// DefaultLimit is how long one device may take to answer.
	DefaultLimit = 5 * time.Second
	// DefaultDisplayReserveBytes is held back on a card with a screen.
	DefaultDisplayReserveBytes = 1 << 30
	// wslReservePercent of the memory is held back under WSL, where not all
	// that is reported free can be had.
	wslReservePercent = 15
)

// Provider lists CUDA devices.
type Provider struct {
	// NVML is the library, or a stand-in.
	NVML api.Interface
	// Node is the host's name.
	Node string
	// Limit bounds each device; 0 means DefaultLimit.
	Limit time.Duration
	// DisplayReserveBytes is held back on a card with a screen.
	DisplayReserveBytes int64
	// WSL says that this is Windows' Linux; see UnderWSL.
	WSL bool
	// Root is where sys is found; empty means "/".
	Root string
}

var _ profiler.Provider = Provider{}

// UnderWSL decides by the text of /proc/sys/kernel/osrelease.
func UnderWSL(kernelRelease string) bool {
	return strings.Contains(strings.ToLower(kernelRelease), "microsoft")
}

// Devices implements profiler.Provider: whole GPUs, or the slices of a GPU that
// is cut into MIG slices, in NVML's order.
func (p Provider) Devices(ctx context.Context) ([]profiler.Device, error) {
	limit := cmp.Or(p.Limit, DefaultLimit)
	count, driver, err := p.open(ctx, limit)
	if err != nil {
		return nil, err
	}
	cards := make([]*card, count)
	var wait sync.WaitGroup
	for i := range cards {
		cards[i] = &card{provider: p, index: i, driver: driver}
		wait.Go(func() { cards[i].ask(ctx, limit) })
	}
	wait.Wait()
	p.askPaths(ctx, limit, cards)
	stuck := false
	var devices []profiler.Device
	for _, c := range cards {
		found, late := c.result()
		devices = append(devices, found...)
		stuck = stuck || late
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: NVML: %w", profiler.ErrCannotAsk, context.Cause(ctx))
	}
	if !stuck {
		// With a call still under way the library must not be closed under it.
		within(ctx, limit, func() { p.NVML.Shutdown() })
	}
	return devices, nil
}

// open starts the library and counts devices.
func (p Provider) open(ctx context.Context, limit time.Duration) (count int, driver string, err error) {
	type answer struct {
		count  int
		driver string
		err    error
	}
	got := make(chan answer, 1)
	go func() {
		if ret := p.NVML.Init(); ret != api.SUCCESS {
			got <- answer{err: p.initFailure(ret)}
			return
		}
		version, ret := p.NVML.SystemGetDriverVersion()
		if ret != api.SUCCESS {
			version = ""
		}
		n, ret := p.NVML.DeviceGetCount()
		if ret != api.SUCCESS {
			p.NVML.Shutdown()
			got <- answer{err: fmt.Errorf("%w: count NVIDIA devices: %w", profiler.ErrCannotAsk, ret)}
			return
		}
		got <- answer{count: n, driver: version}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.count, a.driver, a.err
	case <-ctx.Done():
		return 0, "", fmt.Errorf("%w: start NVML: %w", profiler.ErrCannotAsk, context.Cause(ctx))
	case <-timer.C:
		return 0, "", fmt.Errorf("%w: the NVIDIA driver does not answer within %s", profiler.ErrCannotAsk, limit)
	}
}

// within runs do with a limit and reports whether it came back; if not, its
// goroutine stays behind.
func within(ctx context.Context, limit time.Duration, do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}
