package cpu

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cephalorun/cephalorun/profiler"
)

// Provider lists the host as one device.
type Provider struct {
	// Node is the host's name.
	Node string
	// Root is where proc and sys are found; empty means "/".
	Root string
	// Facts asks the host; nil means HostFacts.
	Facts func(context.Context) (Facts, error)
}

var _ profiler.Provider = Provider{}

// Devices implements profiler.Provider.
func (p Provider) Devices(ctx context.Context) ([]profiler.Device, error) {
	ask := p.Facts
	if ask == nil {
		ask = HostFacts
	}
	facts, err := ask(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", profiler.ErrCannotAsk, err)
	}
	root := cmp.Or(p.Root, "/")
	budget := memoryBudget(root, facts)
	return []profiler.Device{{
		UUID:              "CPU-" + cmp.Or(p.Node, "host"),
		Name:              facts.Model,
		Kind:              profiler.KindCPU,
		Node:              p.Node,
		MemoryBytes:       budget.TotalBytes,
		FreeMemoryBytes:   budget.Bytes,
		UsedByOthersBytes: max(0, budget.TotalBytes-budget.Bytes),
		UsableMemoryBytes: budget.Bytes,
		MemorySource:      budget.Source,
		DTypes:            profiler.NativeDTypes(profiler.KindCPU, profiler.Capability{}),
		Link:              profiler.Link{Type: profiler.LinkHost},
		Threads:           max(1, min(facts.Cores, coresAllowed(root))),
	}}, nil
}

// Budget is the host memory that this process may use.
type Budget struct {
	// Bytes can be used now, TotalBytes is the most that could ever be.
	Bytes      int64
	TotalBytes int64
	// Source is what decides: "host" or "cgroup".
	Source string
}

// String is "4.0 GiB (cgroup)".
func (b Budget) String() string {
	return fmt.Sprintf("%s (%s)", profiler.FormatSize(b.Bytes), b.Source)
}

// HostMemory is the budget of this process on this machine.
func HostMemory(ctx context.Context) (Budget, error) {
	facts, err := HostFacts(ctx)
	if err != nil {
		return Budget{}, err
	}
	return memoryBudget("/", facts), nil
}

func memoryBudget(root string, facts Facts) Budget {
	limit, left := memoryLeft(root)
	b := Budget{Bytes: facts.AvailableBytes, TotalBytes: min(facts.TotalBytes, limit), Source: "host"}
	if left < b.Bytes {
		b.Bytes, b.Source = left, "cgroup"
	}
	return b
}
