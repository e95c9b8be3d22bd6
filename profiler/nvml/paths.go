package nvml

import (
	"context"
	"time"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/cephalorun/cephalorun/profiler"
)

// link asks how the GPU reaches the others: active NVLinks, else PCIe. Width
// and generation are the most that card and slot can do together, since an
// idle card turns them down.
func (c *card) link(handle api.Device) {
	link := profiler.Link{Type: profiler.LinkUnknown, PCIeGeneration: profiler.Unknown, PCIeWidth: profiler.Unknown}
	if generation, ret := handle.GetMaxPcieLinkGeneration(); ret == api.SUCCESS {
		link.Type, link.PCIeGeneration = profiler.LinkPCIe, generation
	}
	if width, ret := handle.GetMaxPcieLinkWidth(); ret == api.SUCCESS {
		link.Type, link.PCIeWidth = profiler.LinkPCIe, width
	}
	for i := range api.NVLINK_MAX_LINKS {
		state, ret := handle.GetNvLinkState(i)
		if ret != api.SUCCESS {
			break // links are counted from 0; the first refusal is past the last
		}
		if state != api.FEATURE_ENABLED {
			continue
		}
		link.NVLinks++
		link.Type = profiler.LinkNVLink
		if version, ret := handle.GetNvLinkVersion(i); ret == api.SUCCESS && link.NVLinkVersion == 0 {
			link.NVLinkVersion = int(version)
		}
	}
	c.tell(func() { c.gpu.Link = link })
}

// askPaths asks for the path between every two cards that answered, within one
// more limit for all of them. Without an answer there are just no peers.
func (p Provider) askPaths(ctx context.Context, limit time.Duration, cards []*card) {
	var whole []*card
	for _, c := range cards {
		c.mu.Lock()
		if c.problem == "" && c.handle != nil && len(c.slices) == 0 {
			whole = append(whole, c)
		}
		c.mu.Unlock()
	}
	if len(whole) < 2 {
		return
	}
	back := within(ctx, limit, func() {
		for _, c := range whole {
			for _, other := range whole {
				if c == other {
					continue
				}
				if path := pathBetween(c.handle, other.handle); path != "" {
					peer := profiler.Peer{UUID: other.uuid(), Path: path}
					c.tell(func() { c.gpu.Link.Peers = append(c.gpu.Link.Peers, peer) })
				}
			}
		}
	})
	if !back {
		whole[0].tell(func() { whole[0].late = true })
	}
}

func (c *card) uuid() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gpu.UUID
}

func pathBetween(a, b api.Device) string {
	if status, ret := a.GetP2PStatus(b, api.P2P_CAPS_INDEX_NVLINK); ret == api.SUCCESS && status == api.P2P_STATUS_OK {
		return "nvlink"
	}
	level, ret := a.GetTopologyCommonAncestor(b)
	if ret != api.SUCCESS {
		return ""
	}
	switch level {
	case api.TOPOLOGY_INTERNAL:
		return "board"
	case api.TOPOLOGY_SINGLE:
		return "switch"
	case api.TOPOLOGY_MULTIPLE:
		return "switches"
	case api.TOPOLOGY_HOSTBRIDGE:
		return "host-bridge"
	case api.TOPOLOGY_NODE:
		return "numa"
	case api.TOPOLOGY_SYSTEM:
		return "system"
	default:
		return ""
	}
}
