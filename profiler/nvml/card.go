package nvml

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/cephalorun/cephalorun/profiler"
)

// card asks one physical GPU. What it has told is kept as it comes, so that a
// card that stops answering half-way is still listed under its name.
type card struct {
	provider Provider
	index    int
	driver   string

	mu      sync.Mutex // guards what follows
	handle  api.Device // nil until told
	gpu     profiler.Device
	slices  []profiler.Device
	problem string
	late    bool
}

// ask fills the card in, within the limit.
func (c *card) ask(ctx context.Context, limit time.Duration) {
	c.tell(func() {
		c.gpu = profiler.Device{
			Kind: profiler.KindCUDA, Node: c.provider.Node, Index: c.index, Driver: c.driver,
			MemoryBytes: profiler.Unknown, FreeMemoryBytes: profiler.Unknown, UsedByOthersBytes: profiler.Unknown, UsableMemoryBytes: profiler.Unknown,
			Cores: profiler.Unknown, MaxClockMHz: profiler.Unknown,
		}
	})
	if !within(ctx, limit, c.questions) {
		c.tell(func() {
			c.late = true
			c.problem = fmt.Sprintf("does not answer within %s", limit)
		})
	}
}

func (c *card) tell(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func (c *card) fail(doing string, ret api.Return) {
	c.tell(func() { c.problem = clause(doing, ret) })
}

// questions runs in a goroutine that may never end: it holds no lock while it
// asks.
func (c *card) questions() {
	handle, ret := c.provider.NVML.DeviceGetHandleByIndex(c.index)
	if ret != api.SUCCESS {
		c.fail("open it", ret)
		return
	}
	uuid, ret := handle.GetUUID()
	if ret != api.SUCCESS {
		c.fail("read its UUID", ret)
		return
	}
	c.tell(func() { c.gpu.UUID, c.gpu.GPUUUID = uuid, uuid })
	if name, ret := handle.GetName(); ret == api.SUCCESS {
		c.tell(func() { c.gpu.Name = name })
	} else if ret == api.ERROR_GPU_IS_LOST {
		c.fail("read its name", ret)
		return
	}
	c.tell(func() { c.handle = handle })
	c.identity(handle)
	if sliced, ret := c.migMode(handle); ret == api.SUCCESS && sliced {
		c.migSlices(handle)
		return
	}
	c.memory(handle)
	c.link(handle)
}

// identity asks for what does not change.
func (c *card) identity(handle api.Device) {
	if pci, ret := handle.GetPciInfo(); ret == api.SUCCESS {
		c.tell(func() { c.gpu.PCIBusID = cString(pci.BusId[:]) })
	}
	if major, minor, ret := handle.GetCudaComputeCapability(); ret == api.SUCCESS {
		c.tell(func() { c.gpu.Capability = profiler.Capability{major, minor} })
	}
	if c.has("nvmlDeviceGetNumGpuCores") {
		if n, ret := handle.GetNumGpuCores(); ret == api.SUCCESS {
			c.tell(func() { c.gpu.Cores = n })
		}
	}
	if mhz, ret := handle.GetMaxClockInfo(api.CLOCK_SM); ret == api.SUCCESS {
		c.tell(func() { c.gpu.MaxClockMHz = int(mhz) })
	}
	active, ret := handle.GetDisplayActive()
	display := ret == api.SUCCESS && active == api.FEATURE_ENABLED
	if !display {
		connected, ret := handle.GetDisplayMode()
		display = ret == api.SUCCESS && connected == api.FEATURE_ENABLED
	}
	c.tell(func() {
		c.gpu.Display = display
		c.gpu.DTypes = profiler.NativeDTypes(profiler.KindCUDA, c.gpu.Capability)
	})
}

// memory asks how much there is. A device that does not support the question
// has no memory of its own: it shares the host's.
func (c *card) memory(handle api.Device) {
	total, free, used, ret := c.memoryInfo(handle)
	switch ret {
	case api.SUCCESS:
		c.tell(func() { c.provider.setMemory(&c.gpu, total, free, used) })
	case api.ERROR_NOT_SUPPORTED:
		c.tell(func() { c.gpu.UnifiedMemory = true })
	case api.ERROR_GPU_IS_LOST:
		c.fail("read its memory", ret)
	}
}

// memoryInfo prefers the version that counts the driver's own reserve apart.
func (c *card) memoryInfo(handle api.Device) (total, free, used uint64, ret api.Return) {
	if c.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := handle.GetMemoryInfo_v2(); ret == api.SUCCESS {
			return m.Total, m.Free, m.Used, ret
		}
	}
	m, ret := handle.GetMemoryInfo()
	return m.Total, m.Free, m.Used, ret
}

// setMemory: nothing of ours runs while devices are listed, so whatever is in
// use belongs to others.
func (p Provider) setMemory(d *profiler.Device, total, free, used uint64) {
	d.MemoryBytes, d.FreeMemoryBytes, d.UsedByOthersBytes = int64(total), int64(free), int64(used)
	if d.Display {
		d.ReserveBytes = p.DisplayReserveBytes
	}
	if p.WSL {
		d.ReserveBytes = max(d.ReserveBytes, int64(total)*wslReservePercent/100)
	}
	d.UsableMemoryBytes = profiler.UsableBytes(d.FreeMemoryBytes, d.ReserveBytes)
}

// has asks whether the installed library knows a call; calling one that it
// does not know would end the process.
func (c *card) has(symbol string) bool {
	return c.provider.NVML.Extensions().LookupSymbol(symbol) == nil
}

// result is what became of the card, and whether a call is still under way.
func (c *card) result() (devices []profiler.Device, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gpu := c.gpu
	gpu.Problem = c.problem
	if c.problem == "" && len(c.slices) > 0 {
		return append(devices, c.slices...), c.late
	}
	return append(devices, gpu), c.late
}

// cString reads C's characters up to the first zero.
func cString(chars []int8) string {
	var b strings.Builder
	for _, ch := range chars {
		if ch == 0 {
			break
		}
		b.WriteByte(byte(ch))
	}
	return b.String()
}
