package profiler

import "fmt"

// LinkType is how a device reaches its peers.
type LinkType string

// The links that are told apart.
const (
	LinkUnknown LinkType = ""
	LinkNVLink  LinkType = "nvlink"
	LinkPCIe    LinkType = "pcie"
	LinkHost    LinkType = "host" // a processor: host memory itself
)

// Link describes the way out of a device. A number of 0 or less is unknown.
type Link struct {
	Type LinkType `json:"type,omitempty"`
	// PCIeGeneration and PCIeWidth (lanes) are what device and slot can do
	// together, not what an idle card has throttled down to.
	PCIeGeneration int `json:"pcie_generation,omitempty"`
	PCIeWidth      int `json:"pcie_width,omitempty"`
	// NVLinks counts active links, NVLinkVersion is their generation.
	NVLinks       int    `json:"nvlinks,omitempty"`
	NVLinkVersion int    `json:"nvlink_version,omitempty"`
	Peers         []Peer `json:"peers,omitempty"`
}

// Peer is the path to one other device, from best to worst: "nvlink", "board",
// "switch", "switches", "host-bridge", "numa", "system".
type Peer struct {
	UUID string `json:"uuid"`
	Path string `json:"path"`
}

// String is short enough for a table: "NVLink 4 x18", "PCIe 4.0 x16", "-".
func (l Link) String() string {
	switch l.Type {
	case LinkNVLink:
		s := "NVLink"
		if l.NVLinkVersion > 0 {
			s = fmt.Sprintf("NVLink %d", l.NVLinkVersion)
		}
		if l.NVLinks > 0 {
			s += fmt.Sprintf(" x%d", l.NVLinks)
		}
		return s
	case LinkPCIe:
		s := "PCIe"
		if l.PCIeGeneration > 0 {
			s = fmt.Sprintf("PCIe %d.0", l.PCIeGeneration)
		}
		if l.PCIeWidth > 0 {
			s += fmt.Sprintf(" x%d", l.PCIeWidth)
		}
		return s
	case LinkHost:
		return "host"
	default:
		return "-"
	}
}
