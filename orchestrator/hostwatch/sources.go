package hostwatch

import (
	"context"

	"github.com/shirou/gopsutil/v3/disk"
	"github.com/shirou/gopsutil/v3/net"

	"github.com/cephalorun/cephalorun/profiler/cpu"
)

// Sources are where numbers of the host come from; tests have others.
type Sources struct {
	Memory func(context.Context) (Memory, error)
	// Disk says how many bytes the disk of a folder has, and how many are free for us.
	Disk func(ctx context.Context, path string) (total, free int64, err error)
	// Traffic counts bytes over all links but the host's own.
	Traffic func(context.Context) (sent, received int64, err error)
}

// Host asks this machine.
func Host() Sources { return Sources{Memory: readMemory, Disk: readDisk, Traffic: readTraffic} }

func readMemory(ctx context.Context) (Memory, error) {
	budget, err := cpu.HostMemory(ctx)
	if err != nil {
		return Memory{}, err
	}
	return Memory{TotalBytes: budget.TotalBytes, FreeBytes: budget.Bytes, Source: budget.Source, OOMKills: cpu.ReadPressure("/").OOMKills}, nil
}

func readDisk(ctx context.Context, path string) (total, free int64, err error) {
	usage, err := disk.UsageWithContext(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	return int64(usage.Total), int64(usage.Free), nil
}

func readTraffic(ctx context.Context) (sent, received int64, err error) {
	links, err := net.IOCountersWithContext(ctx, true)
	if err != nil {
		return 0, 0, err
	}
	for _, l := range links {
		if l.Name != "lo" {
			sent, received = sent+int64(l.BytesSent), received+int64(l.BytesRecv)
		}
	}
	return sent, received, nil
}
