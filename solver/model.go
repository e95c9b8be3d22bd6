package solver

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// model is a validated problem in the form that the search works on.
type model struct {
	problem    Problem
	policies   []Policy
	stateBytes int64     // of all ranks together
	state      []float64 // by class, of all its units, in bytes
	boxes      int       // bound on the boxes of one search, 0 for none
	hasty      bool      // any plan below the limit will do
	split      int       // the class of which a rank may keep the last units only, -1 for none
	kinds      []*kind
	kindOf     []int // by rank
}

// kind is a set of devices that no number tells apart.
type kind struct {
	device Device
	same   string // equal for devices of equal costs and memory
	fixed  int    // the batch given by hand, -1 if free
	even   int    // the even share, in parts per million
	least  int    // the smallest batch allowed
	// mostState bounds the state that the device can hold; see Problem.mostState.
	mostState int64
	ranks     []int
	costs     []ClassCost // by unit class
}

func newModel(p Problem) (*model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	m := &model{problem: p, policies: policiesOf(p), state: p.stateBytes(), split: -1}
	m.stateBytes = m.stateIn(m.every())
	byKey := map[string]int{}
	for i, d := range p.Devices {
		fixed := -1
		if p.FixedBatches != nil {
			fixed = p.FixedBatches[i]
		}
		even := evenPPM(i, len(p.Devices))
		least := 0
		if p.UseAll || p.used[i] {
			least = 1
		}
		same := kindKey(p, d)
		key := fmt.Sprint(fixed, " ", even, " ", least, " ") + same
		at, ok := byKey[key]
		if !ok {
			at = len(m.kinds)
			byKey[key] = at
			k := &kind{device: d, same: same, fixed: fixed, even: even, least: least, mostState: p.mostState(d)}
			for _, u := range p.Units {
				c := d.Costs[u.Class]
				c.keptPeak = c.MemoryBytes
				for _, policy := range [3]Policy{Keep, Recompute, Offload} {
					c.kept[policy.index()] = c.KeptBytesPerSample[policy]
				}
				if !u.WholeBatch {
					c.keptPeak = c.withoutKept()
				}
				k.costs = append(k.costs, c)
			}
			if p.ShownOne {
				shownOne(p.Units, k.costs)
			}
			m.kinds = append(m.kinds, k)
		}
		m.kinds[at].ranks = append(m.kinds[at].ranks, i)
		m.kindOf = append(m.kindOf, at)
	}
	return m, nil
}

// policiesOf lists the allowed policies, fastest first.
func policiesOf(p Problem) []Policy {
	if len(p.Policies) == 0 {
		return []Policy{Recompute}
	}
	var list []Policy
	for _, policy := range []Policy{Keep, Recompute, Offload} {
		if slices.Contains(p.Policies, policy) {
			list = append(list, policy)
		}
	}
	return list
}

// kindKey is equal for two devices if and only if their costs and memory are.
func kindKey(p Problem, d Device) string {
	var key []byte
	number := func(v float64) { key = binary.BigEndian.AppendUint64(key, math.Float64bits(v)) }
	for _, v := range [4]int64{d.UsableMemoryBytes, d.ReservedBytes, d.OutsideBytes, d.HostMemoryBytes} {
		key = binary.BigEndian.AppendUint64(key, uint64(v))
	}
	key = strconv.AppendBool(key, d.CountsOutside)
	for _, u := range p.Units {
		c := d.Costs[u.Class]
		for _, cost := range [3]Cost{c.ForwardMs, c.BackwardMs, c.MemoryBytes} {
			key = binary.BigEndian.AppendUint64(key, uint64(len(cost.Points)))
			for _, point := range cost.Points {
				number(point[0])
				number(point[1])
			}
			number(cost.Tail.Slope)
			number(cost.Tail.Intercept)
		}
		number(c.OffloadMsPerSample)
		for _, policy := range [3]Policy{Keep, Recompute, Offload} {
			number(c.KeptBytesPerSample[policy])
		}
	}
	return string(key)
}

// label of a device in sentences.
func label(d Device) string {
	if d.Name != "" {
		return d.Name
	}
	if d.UUID != "" {
		return d.UUID
	}
	return fmt.Sprintf("device %d", d.Rank)
}

// identity of a device in the plan.
func identity(d Device) string {
	if d.UUID != "" {
		return d.UUID
	}
	return label(d)
}
