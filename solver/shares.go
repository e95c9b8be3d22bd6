package solver

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// classes is a set of unit classes, by their place in the problem.
type classes uint32

func (c classes) has(class int) bool { return c>>class&1 == 1 }

// every is the set of all classes.
func (m *model) every() classes { return 1<<len(m.problem.Units) - 1 }

// stateBytes is what all units of a class keep for the whole run, by class.
func (p Problem) stateBytes() []float64 {
	frozen := p.FrozenBytesPerParameter
	if frozen == 0 {
		frozen = 4
	}
	var out []float64
	for _, u := range p.Units {
		train := float64(u.TrainableParameters)
		out = append(out, float64(u.Count)*(train*p.StateBytesPerParameter+(float64(u.Parameters)-train)*frozen))
	}
	return out
}

// stateIn is the state of a set of classes, of all ranks together.
func (m *model) stateIn(set classes) int64 {
	sum := 0.0
	for i, bytes := range m.state {
		if set.has(i) {
			sum += bytes
		}
	}
	return int64(math.Ceil(min(sum, math.MaxInt64/4)))
}

// part is what a share of so many bytes weighs, rounded up.
func part(bytes int64, ppm int) int64 {
	hi, lo := bits.Mul64(uint64(bytes), uint64(ppm))
	q, r := bits.Div64(hi, lo, TotalPPM)
	if r > 0 {
		q++
	}
	return int64(q)
}

// ppmIn is the largest share of so many bytes of state that fits into a room;
// -1 if the room is less than nothing.
func ppmIn(room, state int64) int {
	if room < 0 {
		return -1
	}
	if room >= state {
		return TotalPPM
	}
	hi, lo := bits.Mul64(uint64(room), TotalPPM)
	q, _ := bits.Div64(hi, lo, uint64(state))
	return int(q)
}

// evenPPM is the even share of a rank; the first ranks take what is left over.
func evenPPM(rank, ranks int) int {
	share := TotalPPM / ranks
	if rank < TotalPPM%ranks {
		share++
	}
	return share
}

// shareChoices is how many classes choose their shares by themselves; what
// follows in size chooses as one.
const shareChoices = 8

// choosers are the sets of classes that are even or ragged together, the
// largest state first. Without state there is nothing to divide.
func (m *model) choosers() []classes {
	var with []int
	for i, bytes := range m.state {
		if bytes > 0 {
			with = append(with, i)
		}
	}
	slices.SortStableFunc(with, func(a, b int) int { return cmp.Compare(m.state[b], m.state[a]) })
	var sets []classes
	for n, class := range with {
		if n >= shareChoices {
			sets[shareChoices-1] |= 1 << class
			continue
		}
		sets = append(sets, 1<<class)
	}
	return sets
}

// raggedFactor is what unequal shares multiply collectives by.
func (m *model) raggedFactor() float64 {
	if m.problem.RaggedFactor > 0 {
		return m.problem.RaggedFactor
	}
	return 1
}

// factor on the collectives of a class; the lesser one where it is open.
func (m *model) factor(class int, ragged, even classes) float64 {
	switch {
	case ragged.has(class):
		return m.raggedFactor()
	case even.has(class):
		return 1
	}
	return min(1, m.raggedFactor())
}

// exposedMs is what overlaps with nothing: the first gather and the last
// reduction, both of the root unit, and the problem's fixed time.
func (m *model) exposedMs(ragged, even classes) float64 {
	if slices.ContainsFunc(m.problem.Units, func(u UnitClass) bool { return u.Held }) {
		return m.problem.FixedMs + m.heldMs(ragged, even)
	}
	root := max(0, slices.IndexFunc(m.problem.Units, func(u UnitClass) bool { return u.WholeBatch }))
	c := m.problem.Collectives[m.problem.Units[root].Class]
	return m.problem.FixedMs + (c.AllGatherMs+c.ReduceScatterMs)*m.factor(root, ragged, even)
}

// heldMs is what the collectives of held units take in one pass through the model
// and back.
func (m *model) heldMs(ragged, even classes) float64 {
	ms := 0.0
	for i, u := range m.problem.Units {
		if u.Held {
			c := m.problem.Collectives[u.Class]
			ms += float64(u.Count) * (c.AllGatherMs + c.ReduceScatterMs) * m.factor(i, ragged, even)
		}
	}
	return ms
}
