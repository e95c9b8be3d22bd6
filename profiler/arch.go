package profiler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ArchList is what torch.cuda.get_arch_list() says a build has code for, such
// as "sm_75", "sm_90a", "compute_90" (PTX).
type ArchList []string

// arch is one entry, taken apart.
type arch struct {
	capability Capability
	ptx        bool // compute_XY: compiled for any newer card when loaded
	exact      bool // suffix a: for this card and no other
}

func parseArch(s string) (arch, bool) {
	digits, isSM := strings.CutPrefix(s, "sm_")
	if !isSM {
		var isPTX bool
		if digits, isPTX = strings.CutPrefix(s, "compute_"); !isPTX {
			return arch{}, false
		}
	}
	a := arch{ptx: !isSM}
	if d, ok := strings.CutSuffix(digits, "a"); ok {
		digits, a.exact = d, true
	} else {
		// Suffix f (one family) follows the rule of a plain entry: same major.
		if d, ok := strings.CutSuffix(digits, "f"); ok {
			digits, a.ptx = d, false
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 10 {
		return arch{}, false
	}
	a.capability = Capability{n / 10, n % 10}
	return a, true
}

// runsOn: machine code runs on the same major version from its minor version
// on, PTX on everything that is not older.
func (a arch) runsOn(c Capability) bool {
	switch {
	case a.exact:
		return a.capability == c
	case a.ptx:
		return c.AtLeast(a.capability)
	default:
		return a.capability[0] == c[0] && c[1] >= a.capability[1]
	}
}

// Supports reports whether the build has code that a card of capability c can
// run.
func (l ArchList) Supports(c Capability) bool {
	return slices.ContainsFunc(l, func(s string) bool {
		a, ok := parseArch(s)
		return ok && a.runsOn(c)
	})
}

// String is the range for a message: "sm_70 to sm_120", with PTX named.
func (l ArchList) String() string {
	var known []arch
	for _, s := range l {
		if a, ok := parseArch(s); ok {
			known = append(known, a)
		}
	}
	if len(known) == 0 {
		return "no CUDA code at all"
	}
	slices.SortFunc(known, func(a, b arch) int {
		return 10*(a.capability[0]-b.capability[0]) + a.capability[1] - b.capability[1]
	})
	first, last := known[0].capability.SM(), known[len(known)-1].capability.SM()
	text := first + " to " + last
	if first == last {
		text = first
	}
	for _, a := range known {
		if a.ptx {
			text += fmt.Sprintf(", PTX from %s", a.capability)
			break
		}
	}
	return text
}

// LeaveOutUnsupported marks the CUDA devices that this torch build has no code
// for, with one sentence each. With none left to run on the error is an
// ErrNoDevice that holds the sentences. Devices of unknown capability stay.
func LeaveOutUnsupported(devices []Device, build ArchList) (kept []Device, notes []string, err error) {
	for _, d := range devices {
		if d.Kind != KindCUDA || !d.Capability.Known() || build.Supports(d.Capability) {
			kept = append(kept, d)
			continue
		}
		sm := d.Capability.SM()
		notes = append(notes, fmt.Sprintf("%s (%s) is not in this torch build (%s); left out. Install a build with %s to use it", d.Label(), sm, build, sm))
	}
	if len(kept) == 0 && len(notes) > 0 {
		return nil, notes, fmt.Errorf("%w: %s", ErrNoDevice, strings.Join(notes, "; "))
	}
	return kept, notes, nil
}
