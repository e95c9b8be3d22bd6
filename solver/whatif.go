package solver

import (
	"fmt"
	"slices"
)

// Without is the problem without some ranks; the others move up. Collectives
// are taken as rings: their times shrink as (N-1)/N does. Batches set by hand
// are forgotten, since they belong to the devices that were there.
func (p Problem) Without(ranks ...int) (Problem, error) {
	for _, r := range ranks {
		if r < 0 || r >= len(p.Devices) {
			return Problem{}, fmt.Errorf("there is no device %d: the ranks are 0 to %d", r, len(p.Devices)-1)
		}
	}
	out := p
	out.Devices, out.FixedBatches, out.used = nil, nil, nil
	var nodes []int
	for i, d := range p.Devices {
		if slices.Contains(ranks, i) {
			continue
		}
		d.Rank = len(out.Devices)
		out.Devices = append(out.Devices, d)
		if p.Links != nil {
			nodes = append(nodes, p.Links.NodeOf[i])
		}
	}
	if len(out.Devices) == 0 {
		return Problem{}, fmt.Errorf("without all %d devices there is nothing to plan for", len(p.Devices))
	}
	if p.Links != nil {
		out.Links = &Links{NodeOf: nodes, Inside: p.Links.Inside, Between: p.Links.Between}
	}
	out.Collectives = p.ringOf(len(out.Devices))
	return out, nil
}

// With is the problem with one device more, in the node of the last one. See
// Without on collectives and batches.
func (p Problem) With(d Device) Problem {
	out := p
	d.Rank = len(p.Devices)
	out.Devices = append(slices.Clone(p.Devices), d)
	out.FixedBatches, out.used = nil, nil
	if l := p.Links; l != nil && len(l.NodeOf) > 0 {
		out.Links = &Links{NodeOf: append(slices.Clone(l.NodeOf), l.NodeOf[len(l.NodeOf)-1]), Inside: l.Inside, Between: l.Between}
	}
	out.Collectives = p.ringOf(len(out.Devices))
	return out
}

// ringOf are the collectives among so many devices.
func (p Problem) ringOf(devices int) map[string]Collective {
	part := func(n int) float64 { return float64(n-1) / float64(n) }
	factor := 1.0 // one device alone says nothing about a ring
	if was := part(len(p.Devices)); was > 0 {
		factor = part(devices) / was
	}
	out := map[string]Collective{}
	for _, class := range sortedKeys(p.Collectives) {
		c := p.Collectives[class]
		out[class] = Collective{c.AllGatherMs * factor, c.ReduceScatterMs * factor}
	}
	return out
}
