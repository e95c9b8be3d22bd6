package solver

import (
	"cmp"
	"math"
	"slices"
)

// grain is the step in which headrooms are compared.
const grain = 1 << 20

// settleNodes bounds the search for headroom. Where devices and classes are so
// many and so different that it is reached, the headroom is the best found.
const settleNodes = 4000

// settle chooses among the picks that take no longer than the best: the
// largest smallest headroom, then per rank the fastest option that costs none
// of it.
func (s *search) settle() {
	s.last = s.nodes + settleNodes
	if s.m.boxes > 0 {
		s.last = s.nodes + min(settleNodes, s.m.boxes)
	}
	best := s.best
	s.limit = s.bestMs * (1 + tolerance)
	s.headroom = 0
	s.improve = func(n *node) bool {
		s.roomiest(n)
		s.keepFree(s.headroom + grain)
		n.split = s.first
		return true
	}
	s.first = s.bestIn
	s.fill(s.limit)
	s.explore(s.root())
	s.keepFree(s.headroom - grain)
	if s.headroom < 0 { // none found again, by rounding
		s.best = best
		s.keepFree(0)
	}
	s.quicken()
}

// roomiest raises the headroom as far as it goes within the bounds that the
// picks reach.
func (s *search) roomiest(n *node) {
	most := slices.Clone(s.reached(n.split))
	s.best = s.picked()
	low, high := s.headroom, s.headroom
	for _, k := range s.m.kinds {
		high = max(high, k.device.UsableMemoryBytes)
	}
	for low+grain <= high {
		next := low + (high-low+grain)/2/grain*grain
		if next <= low {
			next = low + grain
		}
		s.keepFree(next)
		if s.pick(s.box(n.depth+1, s.first, n.least, most, n.options)) {
			s.best, low = s.picked(), next
		} else {
			high = next - grain
		}
	}
	s.keepFree(low)
}

// quicken gives every rank the fastest option of its batch that keeps to the
// bounds and to the headroom.
func (s *search) quicken() {
	most := s.reachedBy(s.first, s.best)
	value := 0
	for k, list := range s.best {
		for _, o := range list {
			value += s.value(s.first, k, o)
		}
	}
	for k, list := range s.best {
		slices.SortStableFunc(list, func(a, b *option) int { return cmp.Compare(b.batch, a.batch) })
		for i, old := range list {
			for _, id := range s.pool.byKind[k] {
				o, v := s.pool.list[id], s.first.values[id]
				if o.batch != old.batch || v < 0 || !noneAbove(o.times, most) || s.own(o) >= s.own(list[i])*(1-tolerance) {
					continue
				}
				if after := value + v - s.value(s.first, k, list[i]); after >= s.first.need {
					list[i], value = o, after
				}
			}
		}
	}
}

// own is what the device itself computes.
func (s *search) own(o *option) float64 {
	sum := 0.0
	for d, t := range o.times {
		sum += s.first.weights[d] * t
	}
	return sum
}

// allocate turns the picks into what every rank is given: within a kind the
// larger batches go to the lower ranks.
func (s *search) allocate() Allocation {
	ranks := len(s.m.kindOf)
	a := Allocation{Shares: EvenShares, Ranks: make([]RankAllocation, ranks)}
	rooms, kinds := make([]int64, ranks), make([]int, ranks)
	for k, list := range s.best {
		for i, rank := range s.m.kinds[k].ranks {
			o := list[i]
			a.Ranks[rank] = RankAllocation{Batch: o.batch, MicroBatches: o.microBatches(), Activations: o.policy, StatePPM: evenPPM(rank, ranks)}
			rooms[rank], kinds[rank] = o.roomAt(s.first.most), k
			if o.partly != nil {
				a.Ranks[rank].KeptUnits = map[string]int{s.m.problem.Units[s.m.split].Class: s.first.most}
			}
		}
	}
	if s.first.ragged == 0 {
		return a
	}
	a.Shares = RaggedShares
	shares := level(ranks, func(rank int, free int64) int { return s.share(s.first, kinds[rank], rooms[rank]-free, free) })
	for rank := range a.Ranks {
		r := &a.Ranks[rank]
		r.StatePPM = shares[rank]
		for class, u := range s.m.problem.Units {
			if !s.first.ragged.has(class) && s.m.state[class] > 0 {
				r.share(u.Class, evenPPM(rank, ranks))
				for _, name := range u.Inside {
					r.share(name, evenPPM(rank, ranks))
				}
			}
		}
	}
	return a
}

func (r *RankAllocation) share(class string, ppm int) {
	if r.ClassStatePPM == nil {
		r.ClassStatePPM = map[string]int{}
	}
	r.ClassStatePPM[class] = ppm
}

// level divides the state so that the free room is as level as it can be: like
// water, the state fills the largest rooms first.
func level(ranks int, share func(rank int, free int64) int) []int {
	fill := func(free int64) (ppm []int, sum int) {
		for rank := range ranks {
			p := max(0, share(rank, free))
			ppm, sum = append(ppm, p), sum+p
		}
		return ppm, sum
	}
	low, high := int64(0), int64(math.MaxInt64/4)
	for low < high {
		mid := low + (high-low+1)/2
		if _, sum := fill(mid); sum >= TotalPPM {
			low = mid
		} else {
			high = mid - 1
		}
	}
	ppm, sum := fill(low)
	for i := len(ppm) - 1; sum > TotalPPM; i-- { // the last ranks give back what is over
		give := min(ppm[i], sum-TotalPPM)
		ppm[i], sum = ppm[i]-give, sum-give
	}
	return ppm
}
