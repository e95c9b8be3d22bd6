package orchestrator

import (
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// Cause is the class of what ended an attempt; what is done about it depends on
// nothing else.
type Cause string

// The causes.
const (
	ScriptFault     Cause = "script"        // an error of the script's own
	EarlyExit       Cause = "early-exit"    // a rank ended with code 0 while others trained
	DeviceMemory    Cause = "device-memory" // a device had no memory left
	HostMemory      Cause = "host-memory"   // the kernel ended a worker for want of memory
	DeviceLost      Cause = "device-lost"   // a device is gone or does not answer
	CollectiveStuck Cause = "stuck"         // ranks wait for one that does not come
	WorkerKilled    Cause = "killed"        // a worker died without a word
	PeersLost       Cause = "peers-lost"    // ranks lost each other, and none says why
	Preempted       Cause = "preempted"     // a signal asked for the end
	DiskFull        Cause = "disk-full"
	QuotaUsed       Cause = "quota"        // the user's part of a disk is used up
	FileSize        Cause = "file-size"    // a file became larger than the limit on sizes
	ReadOnly        Cause = "read-only"    // the file system takes nothing
	BadCheckpoint   Cause = "checkpoint"   // the checkpoint to go on from is damaged
	StartedOver     Cause = "started-over" // the script would have begun again at step 1
	BadDevice       Cause = "bad-device"   // a device computes wrongly
	NoLaunch        Cause = "launcher"     // no worker came up
)

// evidence is what was seen around a failed attempt, besides what its ranks said.
type evidence struct {
	// oomKills is how many processes of our control group the kernel ended meanwhile
	// for want of memory.
	oomKills int64
	// lost are the ranks whose devices are not there any more.
	lost []int
}

// Exceptions of the workers' own that decide by themselves.
const startedOver = "StartedOver"

// Words of exceptions, in lower case.
var (
	deviceMemoryWords = []string{"outofmemoryerror", "out of memory", "can't allocate memory", "not enough memory", "bad_alloc"}
	diskFaultKinds    = []string{"OSError", "CheckpointException"} // others may speak of other devices
	deviceLostWords   = []string{"gpu is lost", "fallen off the bus", "uncorrectable ecc", "no cuda-capable device",
		"devices are busy or unavailable", "device is unavailable", "nvlink error", "hardware stack error"}
)

// causeOf is the one place that turns what was seen into a cause. What a rank says of
// itself comes before what it says of others, and a device that is gone explains every
// death without a word.
func causeOf(f Failure, e evidence) Cause {
	text := strings.ToLower(f.Exception + ": " + f.Message)
	says := func(words []string) bool {
		return f.Reason == reasonException && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case f.Exception == unsoundDevice:
		return BadDevice
	case f.Exception == startedOver:
		return StartedOver
	case f.NeedsMemory || says(deviceMemoryWords):
		return DeviceMemory
	case f.Reason == reasonException && slices.Contains(diskFaultKinds, f.Exception) && diskFault(text) != "":
		return diskFault(text)
	case says(deviceLostWords):
		return DeviceLost
	case f.Reason == reasonException && !f.ofPeers:
		return ScriptFault
	case len(e.lost) > 0:
		return DeviceLost
	case f.Reason == reasonStuck:
		return CollectiveStuck
	case f.Reason == reasonKilled && e.oomKills > 0 && f.Message != interruptedMessage:
		return HostMemory
	case f.Reason == reasonKilled:
		return WorkerKilled
	case f.Reason == reasonEarlyExit:
		return EarlyExit
	case f.Rank == events.NoRank:
		return NoLaunch
	default:
		return PeersLost
	}
}
