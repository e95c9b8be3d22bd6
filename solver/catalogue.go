package solver

// catalogue holds the options of all kinds that take at most a limit by
// themselves, shorter collectives included: longer ones only
// take options away, so every way to share picks from one catalogue.
type catalogue struct {
	m       *model
	menus   []*menu
	limitMs float64 // without what overlaps with nothing
	list    []*option
	times   []float64 // of all options, one after another
	brief   []brief   // likewise
	first   []int     // by kind: its first option in the list, and the end
	// donor has the options of a problem that differs in some devices only; its
	// collectives take no time, so it lacks none of the options up to its limit.
	donor *catalogue
}

func newCatalogue(m *model) *catalogue {
	return catalogueOver(m, m.overlaps(0, 0))
}

func catalogueOver(m *model, beside []overlap) *catalogue {
	c := &catalogue{m: m, limitMs: -1}
	for _, k := range m.kinds {
		c.menus = append(c.menus, newMenu(m, k, beside))
	}
	return c
}

// known is the limit up to which options need not be made.
func (c *catalogue) known() float64 {
	if c.donor != nil {
		return max(c.limitMs, c.donor.limitMs)
	}
	return c.limitMs
}

// borrow is the donor's list of a kind, if it has one.
func (c *catalogue) borrow(k *kind) ([]*option, bool) {
	if c.donor == nil || c.donor.limitMs < c.limitMs {
		return nil, false
	}
	for i, other := range c.donor.m.kinds {
		if other.same == k.same && other.fixed == k.fixed && other.least == k.least {
			return c.donor.list[c.donor.first[i]:c.donor.first[i+1]], true
		}
	}
	return nil, false
}

// upTo makes sure that the catalogue goes up to the limit.
func (c *catalogue) upTo(limitMs float64) {
	if c.limitMs >= limitMs {
		return
	}
	c.limitMs = limitMs
	total := c.m.problem.GlobalBatch
	ceilings, sum := make([]int, len(c.menus)), 0
	for k, u := range c.menus {
		ceilings[k] = u.ceiling(limitMs, total)
		if u.k.fixed >= 0 {
			ceilings[k] = u.k.fixed
		}
		sum += ceilings[k] * len(u.k.ranks)
	}
	c.list, c.first = nil, []int{0}
	for k, u := range c.menus {
		list, ok := c.borrow(u.k)
		if !ok {
			least, _ := c.m.batchRange(u.k, total)
			lowest := max(least, total-(sum-ceilings[k])) // the others can take no more
			for b := lowest; b <= ceilings[k]; b++ {
				list = append(list, u.of(b, limitMs)...)
			}
		}
		c.list = append(c.list, list...)
		c.first = append(c.first, len(c.list))
	}
	c.times = make([]float64, 0, len(c.list)*len(c.m.steps()))
	c.brief = make([]brief, 0, len(c.list))
	for _, o := range c.list {
		c.times = append(c.times, o.times...)
		c.brief = append(c.brief, brief{o.room, o.batch, wayOf(o)})
	}
}

// lowerMs bounds an iteration from below by the fastest rates alone.
func (c *catalogue) lowerMs() float64 {
	total := c.m.problem.GlobalBatch
	enough := func(limit float64) bool {
		sum := 0
		for _, u := range c.menus {
			sum += u.ceiling(limit, total) * len(u.k.ranks)
			if sum >= total {
				return true
			}
		}
		return false
	}
	lo, hi := 0.0, 0.0
	for _, u := range c.menus {
		hi = max(hi, u.least(total))
	}
	for range 50 {
		if mid := (lo + hi) / 2; enough(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo
}
