package show

import (
	"fmt"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
)

// Devices is the table of devices, by rank, and what was left out below it.
func Devices(chosen, leftOut []profiler.Device, notes []string) string {
	header := []string{"rank", "device", "kind", "capability", "dtypes", "memory", "free", "others use", "link", "uuid"}
	var rows [][]string
	for rank, d := range chosen {
		rows = append(rows, append([]string{number(rank)}, deviceRow(d)...))
	}
	var b strings.Builder
	b.WriteString(table(header, rows, 5))
	for _, d := range leftOut {
		fmt.Fprintf(&b, "left out: %s %s\n", d.Label(), d.Problem)
	}
	for _, note := range notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	return b.String()
}

func deviceRow(d profiler.Device) []string {
	capability := none
	if d.Kind == profiler.KindCUDA && d.Capability != (profiler.Capability{}) {
		capability = d.Capability.String()
	}
	var dtypes []string
	for _, t := range d.DTypes {
		dtypes = append(dtypes, string(t))
	}
	types := strings.Join(dtypes, " ")
	if types == "" {
		types = none
	}
	return []string{deviceName(d), string(d.Kind), capability, types,
		Bytes(d.MemoryBytes), Bytes(d.FreeMemoryBytes), Bytes(d.UsedByOthersBytes), d.Link.String(), d.UUID}
}

// deviceName is the name with what makes a virtual device slower.
func deviceName(d profiler.Device) string {
	name := d.Name
	var limits []string
	if d.SMPercent > 0 {
		limits = append(limits, fmt.Sprintf("%d %% of the SMs", d.SMPercent))
	}
	if d.Slowdown > 1 {
		limits = append(limits, fmt.Sprintf("slowed down %gx", d.Slowdown))
	}
	if len(limits) > 0 {
		name += " (" + strings.Join(limits, ", ") + ")"
	}
	return name
}
