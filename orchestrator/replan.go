package orchestrator

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/profiler"
)

// A device that is lost so often within so short a time is left out for good.
const (
	flapTimes = 3
	flapSpan  = 10 * time.Minute
)

// lostRanks are the ranks whose devices are not there any more, or cannot be used. Who
// cannot be asked is not taken for lost.
func (s *session) lostRanks(ctx context.Context, f Failure) []int {
	switch causeOf(f, evidence{}) {
	case DeviceLost: // it says so itself, whatever the driver lists
		return []int{f.Rank}
	case ScriptFault, DeviceMemory, DiskFull, QuotaUsed, FileSize, ReadOnly, BadDevice, StartedOver, NoLaunch:
		return nil
	}
	now, err := s.find(ctx)
	if err != nil {
		s.screen.say("note: the devices could not be asked for: %v", err)
		return nil
	}
	var lost []int
	for rank, d := range s.devices.Chosen {
		if !has(now.Chosen, d.UUID) {
			lost = append(lost, rank)
		}
	}
	return lost
}

func has(devices []profiler.Device, uuid string) bool {
	return slices.ContainsFunc(devices, func(d profiler.Device) bool { return d.UUID == uuid })
}

// adapt changes the plan of the next attempt, if the cause asks for it: a device that was
// lost is left out, one that is back is used again, one that had too little memory gets
// less to do. The global batch stays.
func (s *session) adapt(ctx context.Context, f Failure) error {
	if f.Cause == DeviceMemory && f.Rank >= 0 {
		return s.lighten(f)
	}
	present, err := s.present(ctx)
	if err != nil || sameUUIDs(present, s.devices.Chosen) {
		return err
	}
	return s.replanOn(present)
}

// present are the devices of the run that are there now. Those that come and go, and
// those that failed by their own word, are left out.
func (s *session) present(ctx context.Context) ([]profiler.Device, error) {
	present := s.presence()(ctx)
	if len(present) == 0 {
		return nil, machine("no device of this run is left: %s", labels(s.all))
	}
	return present, nil
}

// presence is a function that asks which of the run's devices can be used; it may be
// called from another goroutine. When nobody can be asked it answers with those in use.
func (s *session) presence() func(context.Context) []profiler.Device {
	chosen := s.devices.Chosen
	var candidates []profiler.Device
	for _, d := range s.all {
		if !slices.Contains(s.banned, d.UUID) && s.restarts.lostTimes(d.UUID, s.deps.Now()) < flapTimes {
			candidates = append(candidates, d)
		}
	}
	return func(ctx context.Context) []profiler.Device {
		now, err := s.find(ctx)
		if err != nil {
			return chosen
		}
		var present []profiler.Device
		for _, d := range candidates {
			if has(now.Chosen, d.UUID) {
				present = append(present, d)
			}
		}
		return present
	}
}

// lostTimes is how often a device was lost lately.
func (r *restarts) lostTimes(uuid string, now time.Time) int {
	n := 0
	for _, f := range r.Failures {
		if now.Sub(f.Time) <= flapSpan && slices.Contains(f.UUIDs, uuid) {
			n++
		}
	}
	return n
}

// replanOn plans for other devices than before.
func (s *session) replanOn(devices []profiler.Device) error {
	for _, d := range s.devices.Chosen {
		if !has(devices, d.UUID) {
			s.screen.say("%s is left out from here on", d.Label())
		}
	}
	for _, d := range devices {
		if !has(s.devices.Chosen, d.UUID) {
			s.screen.say("%s is back and is used again", d.Label())
		}
	}
	s.devices.Chosen = devices
	s.profile = profileOf(s.whole, devices).Drifted(s.drifted)
	return s.replan()
}

// replan solves again and writes what workers read.
func (s *session) replan() error {
	if err := profiler.WriteProfile(s.run.Path(rundir.ProfileFile), s.profile); err != nil {
		return err
	}
	return s.makePlan()
}

// profileOf is the part of a profile that belongs to some of its devices, in their order.
// What the group does together was measured with all of them, which is the best that is
// known.
func profileOf(p profiler.Profile, devices []profiler.Device) profiler.Profile {
	all := p.Devices
	p.Devices = nil
	for rank, d := range devices {
		for _, one := range all {
			if one.UUID == d.UUID {
				one.Rank = rank
				p.Devices = append(p.Devices, one)
			}
		}
	}
	return p
}

func sameUUIDs(a, b []profiler.Device) bool {
	return slices.EqualFunc(a, b, func(x, y profiler.Device) bool { return x.UUID == y.UUID })
}

func labels(devices []profiler.Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Label())
	}
	return strings.Join(all, ", ")
}
