package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/fleet"
	"github.com/cephalorun/cephalorun/profiler/virtual"
	"github.com/cephalorun/cephalorun/profiler/visible"
)

// DeviceFinder lists the devices of a run.
type DeviceFinder struct {
	// Spec is the value of --devices: empty, a file, or a list of indexes and UUIDs.
	Spec    string
	Environ []string
	GPUs    profiler.Provider
	CPU     profiler.Provider
}

// Devices is what was found.
type Devices struct {
	// Chosen are the devices to train on, by rank.
	Chosen []profiler.Device
	// LeftOut cannot be used; each says why in Problem.
	LeftOut []profiler.Device
	// Notes are sentences for the user.
	Notes []string
}

// Find lists devices in the order of their ranks. An error of class ErrMachine means
// that there is none.
func (f DeviceFinder) Find(ctx context.Context) (Devices, error) {
	if isFile(f.Spec) {
		return f.fromFile(ctx)
	}
	gpus, notes, err := f.gpus(ctx)
	if err != nil {
		return Devices{}, err
	}
	found := Devices{Notes: notes}
	if f.Spec != "" {
		found.Chosen, err = f.pick(ctx, gpus.Devices)
		if err == nil && gpus.OrderNote != "" && hasIndex(f.Spec) {
			found.Notes = append(found.Notes, gpus.OrderNote)
		}
		return found, err
	}
	found.Chosen, found.LeftOut = profiler.Usable(gpus.Devices)
	if len(found.Chosen) == 0 && len(found.LeftOut) > 0 {
		return Devices{}, machine("%w: %s", profiler.ErrNoDevice, problemsOf(found.LeftOut))
	}
	if len(found.Chosen) == 0 {
		cpu, err := f.cpu(ctx)
		if err != nil {
			return Devices{}, err
		}
		found.Chosen = []profiler.Device{cpu}
		found.Notes = append(found.Notes, "no GPU here: training on the processor")
	}
	return found, nil
}

// isFile says whether --devices names a file rather than devices.
func isFile(spec string) bool {
	switch strings.ToLower(filepath.Ext(spec)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	info, err := os.Stat(spec)
	return spec != "" && err == nil && !info.IsDir()
}

// fromFile reads a devices file, or a fleet (JSON).
func (f DeviceFinder) fromFile(ctx context.Context) (Devices, error) {
	if strings.EqualFold(filepath.Ext(f.Spec), ".json") {
		fl, err := fleet.Read(f.Spec)
		if err != nil {
			return Devices{}, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		list, err := fl.Devices(ctx)
		if err != nil {
			return Devices{}, machine("%w", err)
		}
		chosen, left := profiler.Usable(list)
		if len(chosen) == 0 {
			return Devices{}, machine("%w in %s: %s", profiler.ErrNoDevice, f.Spec, problemsOf(left))
		}
		return Devices{Chosen: chosen, LeftOut: left}, nil
	}
	file, err := virtual.Read(f.Spec)
	if err != nil {
		return Devices{}, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	var real []profiler.Device
	var notes []string
	if file.Kind() == profiler.KindCPU {
		cpu, err := f.cpu(ctx)
		if err != nil {
			return Devices{}, err
		}
		real = []profiler.Device{cpu}
	} else {
		gpus, more, err := f.gpus(ctx)
		if err != nil {
			return Devices{}, err
		}
		if len(gpus.Devices) == 0 {
			return Devices{}, machine("%w: %s describes parts of GPUs, and there is no GPU here", profiler.ErrNoDevice, f.Spec)
		}
		real, notes = gpus.Devices, more
		if gpus.OrderNote != "" {
			notes = append(notes, gpus.OrderNote)
		}
	}
	chosen, err := file.Resolve(real)
	if err != nil {
		return Devices{}, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return Devices{Chosen: chosen, Notes: notes}, nil
}

// gpus are the visible GPUs in CUDA's order. No driver means none; a driver that does
// not answer is an error and never means none.
func (f DeviceFinder) gpus(ctx context.Context) (visible.Selection, []string, error) {
	list, err := f.GPUs.Devices(ctx)
	if errors.Is(err, profiler.ErrNoDriver) {
		return visible.Selection{}, nil, nil
	}
	if err != nil {
		return visible.Selection{}, nil, machine("%w; --devices with a file of cpu devices does without GPUs", err)
	}
	s, err := visible.Resolve(visible.FromEnviron(f.Environ), list)
	if err != nil {
		return visible.Selection{}, nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return s, s.Notes, nil
}

func (f DeviceFinder) cpu(ctx context.Context) (profiler.Device, error) {
	list, err := f.CPU.Devices(ctx)
	if err != nil {
		return profiler.Device{}, machine("%w", err)
	}
	if len(list) == 0 {
		return profiler.Device{}, machine("%w", profiler.ErrNoDevice)
	}
	return list[0], nil
}

// pick resolves a list such as "0,GPU-8f,cpu".
func (f DeviceFinder) pick(ctx context.Context, gpus []profiler.Device) ([]profiler.Device, error) {
	var chosen []profiler.Device
	taken := map[string]bool{}
	for _, item := range strings.Split(f.Spec, ",") {
		item = strings.TrimSpace(item)
		d, err := f.pickOne(ctx, gpus, item)
		if err != nil {
			return nil, err
		}
		if d.Problem != "" {
			return nil, machine("--devices: %s cannot be used: it %s", d.Label(), d.Problem)
		}
		if taken[d.UUID] {
			return nil, usage("--devices: %s is there twice (%s)", item, d.Label())
		}
		taken[d.UUID] = true
		chosen = append(chosen, d)
	}
	return chosen, nil
}

func (f DeviceFinder) pickOne(ctx context.Context, gpus []profiler.Device, item string) (profiler.Device, error) {
	if item == "" {
		return profiler.Device{}, usage("--devices: an entry is empty in %q", f.Spec)
	}
	if strings.EqualFold(item, "cpu") {
		return f.cpu(ctx)
	}
	if n, err := strconv.Atoi(item); err == nil {
		if n < 0 || n >= len(gpus) {
			return profiler.Device{}, usage("--devices: there is no GPU %d: %d can be seen here", n, len(gpus))
		}
		return gpus[n], nil
	}
	var found []profiler.Device
	for _, d := range gpus {
		if strings.HasPrefix(strings.ToLower(d.UUID), strings.ToLower(item)) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return profiler.Device{}, usage("--devices: %q is no file, no index, and no UUID of a GPU here", item)
	default:
		return profiler.Device{}, usage("--devices: %s matches %d devices: write more of the UUID", item, len(found))
	}
}

func hasIndex(spec string) bool {
	for _, item := range strings.Split(spec, ",") {
		if _, err := strconv.Atoi(strings.TrimSpace(item)); err == nil {
			return true
		}
	}
	return false
}

func problemsOf(devices []profiler.Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Label()+" "+d.Problem)
	}
	return strings.Join(all, "; ")
}
