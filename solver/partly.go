package solver

// partly is what an option needs that keeps the last units of a class only: how
// many these are is decided by the search, for all ranks at once.
type partly struct {
	kept float64 // bytes between forward and backward, if none of them were kept
	more float64 // bytes that each of them keeps in addition
	host float64 // bytes in host memory, if none of them were kept
	less float64 // bytes there that each of them saves
	most int64   // allowed in host memory, 0 for no bound
}

// partlyKept is nil where keeping takes no more memory: then all units may be kept.
func (u *menu) partlyKept(batch int, policy Policy) *partly {
	c, samples := &u.k.costs[u.m.split], float64(batch)
	p := &partly{more: (c.kept[Keep.index()] - c.kept[policy.index()]) * samples, most: u.k.device.HostMemoryBytes}
	if policy == Offload {
		p.less = max(0, c.kept[Recompute.index()]-c.kept[Offload.index()]) * samples
	}
	if p.more <= 0 {
		return nil
	}
	return p
}

// roomAt is what is left for state if so many units are kept in part; below 0
// it does not fit.
func (o *option) roomAt(kept int) int64 {
	if o.partly == nil {
		return o.room
	}
	return o.room - wholeBytes(o.partly.kept+float64(kept)*o.partly.more)
}

// hostFits says that what is offloaded keeps to the host memory allowed.
func (o *option) hostFits(kept int) bool {
	p := o.partly
	return p == nil || p.most <= 0 || wholeBytes(p.host-float64(kept)*p.less) <= p.most
}

// beats says that the option is as good as another of its batch in every respect,
// however many units are kept in part.
func (o *option) beats(other *option) bool {
	if !noneAbove(o.times, other.times) {
		return false
	}
	if o.partly == nil {
		return o.room >= other.roomAt(1)
	}
	return other.partly != nil && o.policy == other.policy && o.room >= other.room
}
