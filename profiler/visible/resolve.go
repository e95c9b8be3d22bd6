package visible

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
)

// Environment is what decides, as found in the environment.
type Environment struct {
	// Devices is CUDA_VISIBLE_DEVICES; Set tells unset from empty.
	Devices string
	Set     bool
	// Order is CUDA_DEVICE_ORDER; empty means CUDA's default, FASTEST_FIRST.
	Order string
}

// FromEnviron picks the two variables out of a list such as os.Environ().
// As in a process, the last of equal names counts.
func FromEnviron(environ []string) Environment {
	var e Environment
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "CUDA_VISIBLE_DEVICES":
			e.Devices, e.Set = value, true
		case "CUDA_DEVICE_ORDER":
			e.Order = value
		}
	}
	return e
}

// Selection is what is visible.
type Selection struct {
	// Devices are in CUDA's order: Devices[i] is what a program would call
	// device i.
	Devices []profiler.Device
	// Notes are sentences for the user; about an assumed order, for example.
	Notes []string
	// OrderNote is not empty when positions in Devices rest on an assumption:
	// show it when an index of the user's is resolved through Devices.
	OrderNote string
}

// Resolve applies the environment to the CUDA devices of a provider; other
// kinds are ignored. Everything wrong with the variable is reported at once.
func Resolve(env Environment, devices []profiler.Device) (Selection, error) {
	var cuda []profiler.Device
	for _, d := range devices {
		if d.Kind == profiler.KindCUDA {
			cuda = append(cuda, d)
		}
	}
	ordered, certain := order(cuda, env.Order)
	note := ""
	if !certain {
		note = orderNote(gpus(ordered))
	}
	if !env.Set {
		return Selection{Devices: ordered, OrderNote: note}, nil
	}
	r := resolver{ordered: ordered, gpus: gpus(ordered), taken: map[string]string{}}
	for _, entry := range entries(env.Devices) {
		r.add(entry)
	}
	if err := r.problems.Err("CUDA_VISIBLE_DEVICES=" + env.Devices); err != nil {
		return Selection{}, err
	}
	s := Selection{Devices: r.chosen, Notes: r.notes}
	if r.usedIndex && note != "" {
		s.OrderNote = note
		s.Notes = append(s.Notes, note)
	}
	return s, nil
}

func orderNote(cards [][]profiler.Device) string {
	var names []string
	for i, slices := range cards {
		names = append(names, fmt.Sprintf("%d = %s", i, model(slices[0])))
	}
	return "the cards are of different models and CUDA_DEVICE_ORDER is not PCI_BUS_ID, so indexes are taken as fastest first (" +
		strings.Join(names, ", ") + "); name cards by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID, to be sure"
}

// entries cuts the variable up: -1 and NoDevFiles (which some schedulers set)
// end the list.
func entries(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	var out []string
	for _, entry := range strings.Split(value, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "-1" || entry == "NoDevFiles" {
			break
		}
		out = append(out, entry)
	}
	return out
}

type resolver struct {
	ordered []profiler.Device
	gpus    [][]profiler.Device

	problems  profiler.ProblemList
	chosen    []profiler.Device
	notes     []string
	taken     map[string]string // UUID (or index, if it told none) -> entry
	usedIndex bool
	count     int
}

func (r *resolver) add(entry string) {
	r.count++
	path := fmt.Sprintf("entry %d", r.count)
	d, problem := r.find(entry)
	if problem != "" {
		r.problems.Add(path, "%s", problem)
		return
	}
	key := cmp.Or(d.UUID, fmt.Sprintf("index %d", d.Index))
	if first, twice := r.taken[key]; twice {
		r.problems.Add(path, "%s names %s a second time (first as %s)", entry, d.Label(), first)
		return
	}
	r.taken[key] = entry
	r.chosen = append(r.chosen, d)
}

func (r *resolver) find(entry string) (profiler.Device, string) {
	switch upper := strings.ToUpper(entry); {
	case entry == "":
		return profiler.Device{}, "is empty: remove the extra comma"
	case strings.HasPrefix(upper, "GPU-"):
		return r.byGPU(entry)
	case strings.HasPrefix(upper, "MIG-"):
		return r.byMIG(entry)
	default:
		return r.byIndex(entry)
	}
}

func (r *resolver) byIndex(entry string) (profiler.Device, string) {
	n, err := strconv.Atoi(entry)
	if err != nil || n < 0 {
		return profiler.Device{}, fmt.Sprintf("%q is neither an index nor a GPU-… or MIG-… UUID", entry)
	}
	if n >= len(r.gpus) {
		return profiler.Device{}, fmt.Sprintf("there is no GPU %d: %s", n, r.have())
	}
	r.usedIndex = true
	return r.whole(entry, r.gpus[n]), ""
}

func (r *resolver) byGPU(entry string) (profiler.Device, string) {
	var found [][]profiler.Device
	for _, parts := range r.gpus {
		if hasPrefixFold(parts[0].GPUUUID, entry) || parts[0].GPUUUID == "" && hasPrefixFold(parts[0].UUID, entry) {
			found = append(found, parts)
		}
	}
	if problem := r.unique(entry, len(found)); problem != "" {
		return profiler.Device{}, problem
	}
	return r.whole(entry, found[0]), ""
}

func (r *resolver) byMIG(entry string) (profiler.Device, string) {
	var found []profiler.Device
	for _, d := range r.ordered {
		if hasPrefixFold(d.UUID, entry) {
			found = append(found, d)
		}
	}
	if problem := r.unique(entry, len(found)); problem != "" {
		return profiler.Device{}, problem
	}
	return found[0], ""
}

// whole is the device that CUDA opens under a physical GPU's name: the GPU, or
// its first slice when it is cut into slices.
func (r *resolver) whole(entry string, parts []profiler.Device) profiler.Device {
	if parts[0].MIG && len(parts) > 1 {
		r.notes = append(r.notes, fmt.Sprintf("%s is cut into %d MIG slices; CUDA opens only the first one, %s. Name slices by their MIG- UUID", entry, len(parts), parts[0].UUID))
	}
	return parts[0]
}

func (r *resolver) unique(entry string, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%s matches no device: %s", entry, r.have())
	case 1:
		return ""
	default:
		return fmt.Sprintf("%s matches %d devices: write more of the UUID", entry, n)
	}
}

func (r *resolver) have() string {
	switch n := len(r.gpus); n {
	case 0:
		return "this machine has no GPU"
	case 1:
		return "this machine has one GPU, number 0, " + r.gpus[0][0].UUID
	default:
		return fmt.Sprintf("this machine has %d GPUs, 0 to %d", n, n-1)
	}
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
