package cache

import "github.com/cephalorun/cephalorun/profiler"

// Refresh brings a cached profile up to date with the devices as they are now:
// how much memory they have to give changes from run to run, what a unit costs
// on them does not. Devices are matched by UUID; others are left as they were.
func Refresh(p profiler.Profile, devices []profiler.Device) profiler.Profile {
	p.Devices = append([]profiler.ProfileDevice(nil), p.Devices...)
	for i, d := range p.Devices {
		for _, now := range devices {
			if now.UUID == d.UUID && now.UsableMemoryBytes >= 0 {
				p.Devices[i].UsableMemoryBytes = min(now.UsableMemoryBytes, d.MemoryBytes)
			}
		}
	}
	return p
}
