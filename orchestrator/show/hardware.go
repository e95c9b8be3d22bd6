package show

import (
	"fmt"
	"slices"
)

// HardwareNumbers is what one rank measured of its device: tera floating-point
// operations per second of a matrix product by type, and giga bytes per second of
// device memory, of the link to the host, and of each collective of the group.
type HardwareNumbers struct {
	MatmulTFLOPS       map[string]float64 `json:"matmul_tflops"`
	MemoryBandwidthGBs float64            `json:"memory_bandwidth_gbs"`
	HostLinkGBs        float64            `json:"host_link_gbs"`
	CollectivesGBs     map[string]float64 `json:"collectives_gbs"`
}

// Hardware is one device with its numbers.
type Hardware struct {
	Rank   int    `json:"rank"`
	Device string `json:"device"`
	UUID   string `json:"uuid"`
	HardwareNumbers
}

// HardwareTable is the table of all devices. A number that was not measured is "-".
func HardwareTable(list []Hardware) string {
	var dtypes, collectives []string
	for _, h := range list {
		dtypes = union(dtypes, h.MatmulTFLOPS)
		collectives = union(collectives, h.CollectivesGBs)
	}
	header := []string{"rank", "device"}
	for _, d := range dtypes {
		header = append(header, d+" TFLOP/s")
	}
	header = append(header, "memory GB/s", "host link GB/s")
	for _, c := range collectives {
		header = append(header, c+" GB/s")
	}
	var rows [][]string
	for _, h := range list {
		row := []string{number(h.Rank), h.Device}
		for _, d := range dtypes {
			row = append(row, measured(h.MatmulTFLOPS[d]))
		}
		row = append(row, measured(h.MemoryBandwidthGBs), measured(h.HostLinkGBs))
		for _, c := range collectives {
			row = append(row, measured(h.CollectivesGBs[c]))
		}
		rows = append(rows, row)
	}
	return table(header, rows, 2)
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
