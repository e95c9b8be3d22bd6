package solver

import "math"

// mostState is the most state that a device can hold and still make the optimizer's
// step, which takes memory in proportion to the state, while nothing else is held.
func (p Problem) mostState(d Device) int64 {
	if p.StepBytesPerParameter <= 0 {
		return math.MaxInt64 / 4
	}
	share := p.StateBytesPerParameter / (p.StateBytesPerParameter + p.StepBytesPerParameter)
	return int64(float64(d.UsableMemoryBytes-d.OutsideBytes) * share)
}

// memoryFor is at least what a device needs in addition to hold so much more state and
// step it.
func (p Problem) memoryFor(state int64) int64 {
	if p.StepBytesPerParameter <= 0 || state <= 0 {
		return state
	}
	return int64(math.Ceil(float64(state)*(1+p.StepBytesPerParameter/p.StateBytesPerParameter))) + 1
}
