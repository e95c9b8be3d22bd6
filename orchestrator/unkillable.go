package orchestrator

import (
	"slices"
)

// sayLeft names the processes that could not be killed, and returns the ranks whose
// workers are among them: most likely their devices do not answer.
func (s *session) sayLeft(end ended) []int {
	var held []int
	for _, p := range end.outcome.Left {
		rank := slices.IndexFunc(end.stories.ranks, func(r rankStory) bool { return r.pid == p.PID })
		if rank < 0 || rank >= len(s.devices.Chosen) {
			s.screen.say("%s cannot be killed; leaving it. A device may need a reset of the host", p)
			continue
		}
		s.screen.say("worker %s of rank %d cannot be killed, most likely because of %s; leaving it. The host may need a reboot", p, rank, s.devices.Chosen[rank].Label())
		held = append(held, rank)
	}
	return held
}

// without leaves the devices of these ranks out for good, and adds the ranks to those that
// are lost. With no other device left nothing is gained by that.
func (s *session) without(held, lost []int) []int {
	for _, rank := range held {
		if !slices.Contains(lost, rank) && len(lost)+1 < len(s.devices.Chosen) {
			lost = append(lost, rank)
			s.banned = append(s.banned, s.devices.Chosen[rank].UUID)
		}
	}
	return lost
}
