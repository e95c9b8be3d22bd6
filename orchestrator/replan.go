package orchestrator

import (
	"context"
	"slices"

	"github.com/cephalorun/cephalorun/profiler"
)

// lostRanks are the ranks whose devices are not there any more, or cannot be used. Who
// cannot be asked is not taken for lost.
func (s *session) lostRanks(ctx context.Context, f Failure) []int {
	s.lost = nil
	if f.Reason == reasonException && !f.ofPeers && causeOf(f, evidence{}) != DeviceLost {
		return nil
	}
	now, err := s.find(ctx)
	if err != nil {
		s.screen.say("note: the devices could not be asked for: %v", err)
		return nil
	}
	for rank, d := range s.devices.Chosen {
		if !slices.ContainsFunc(now.Chosen, func(n profiler.Device) bool { return n.UUID == d.UUID }) {
			s.lost = append(s.lost, rank)
		}
	}
	return s.lost
}

// adapt changes what the next attempt runs on, if the cause asks for it.
func (s *session) adapt(ctx context.Context, f Failure) error {
	return nil
}
