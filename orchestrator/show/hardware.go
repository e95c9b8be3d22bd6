package show

import (
	"fmt"
	"slices"
)

// HardwareNumbers is what one rank measured of its device. A number that could not be
// measured is missing.
type HardwareNumbers struct {
	// MatmulTFLOPS is tera floating-point operations per second of a matrix product,
	// by type.
	MatmulTFLOPS map[string]float64 `json:"matmul_tflops"`
	// MemoryGBs is giga bytes per second within the device's memory, read and write.
	MemoryGBs *float64 `json:"memory_gb_per_s"`
	// HostLinkGBs is giga bytes per second between host and device, by kind of host
	// memory and direction ("pinned_to_device").
	HostLinkGBs map[string]float64 `json:"host_link_gb_per_s"`
	Collectives []CollectiveNumber `json:"collectives"`
}

// CollectiveNumber is one collective of the whole group on a buffer of a size.
type CollectiveNumber struct {
	Collective string  `json:"collective"`
	Bytes      int64   `json:"bytes"`
	Ms         float64 `json:"ms"`
	GBs        float64 `json:"gb_per_s"`
}

// Hardware is one device with its numbers.
type Hardware struct {
	Rank   int    `json:"rank"`
	Device string `json:"device"`
	UUID   string `json:"uuid"`
	HardwareNumbers
}

// HardwareTable is the table of all devices and, below it, that of the collectives,
// which are the group's. A number that was not measured is "-".
func HardwareTable(list []Hardware) string {
	var dtypes, links []string
	for _, h := range list {
		dtypes, links = union(dtypes, h.MatmulTFLOPS), union(links, h.HostLinkGBs)
	}
	header := []string{"rank", "device"}
	for _, d := range dtypes {
		header = append(header, d+" TFLOP/s")
	}
	header = append(header, "memory GB/s")
	for _, l := range links {
		header = append(header, l+" GB/s")
	}
	var rows [][]string
	for _, h := range list {
		row := []string{number(h.Rank), h.Device}
		for _, d := range dtypes {
			row = append(row, measured(h.MatmulTFLOPS[d]))
		}
		if h.MemoryGBs == nil {
			row = append(row, none)
		} else {
			row = append(row, measured(*h.MemoryGBs))
		}
		for _, l := range links {
			row = append(row, measured(h.HostLinkGBs[l]))
		}
		rows = append(rows, row)
	}
	return table(header, rows, 2) + collectives(list)
}

// collectives are the same on every rank: all wait for the slowest.
func collectives(list []Hardware) string {
	if len(list) < 2 {
		return ""
	}
	var rows [][]string
	for _, c := range list[0].Collectives {
		rows = append(rows, []string{c.Collective, Bytes(c.Bytes), Ms(c.Ms), measured(c.GBs)})
	}
	if len(rows) == 0 {
		return ""
	}
	return "\n" + table([]string{"collective", "size", "time", "GB/s"}, rows, 1)
}

// union adds names in order.
func union(names []string, values map[string]float64) []string {
	for name := range values {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func measured(v float64) string {
	if v <= 0 {
		return none
	}
	return fmt.Sprintf("%.3g", v)
}
