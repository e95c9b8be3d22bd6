package solver

import (
	"math"
	"slices"
)

// oracle finds the least iteration time by trying everything: every batch,
// microbatch size and policy of every rank, one rank after the other. It
// states the objective a second time, in its own words, and shares no code
// with the search. The classes whose bit is set in ragged have ragged shares. Of
// the units of class split the last kept are those that a rank may keep without
// keeping all; split is -1 for none. It returns what it was given as the limit if
// nothing that fits is below.
func oracle(p Problem, ragged, split, kept int, limit float64) float64 {
	o := &trial{p: p, ragged: ragged, split: split, kept: kept, best: limit}
	factors := make([]float64, len(p.Units))
	for i, u := range p.Units {
		train := float64(u.TrainableParameters)
		state := float64(u.Count) * (train*p.StateBytesPerParameter + (float64(u.Parameters)-train)*p.FrozenBytesPerParameter)
		factors[i] = 1
		if ragged>>i&1 == 1 {
			factors[i] = p.RaggedFactor
			o.loose += state
		} else {
			o.even += state
		}
	}
	var line []int // units in the order of their reductions, at most two of a class
	for i, u := range p.Units {
		for range min(2, u.Count) {
			line = append(line, i)
		}
	}
	for at, i := range line {
		sum := 0.0
		for _, j := range []int{i, line[min(at+1, len(line)-1)]}[:min(2, len(line)-at)] {
			if ragged>>j&1 == 1 {
				sum += float64(p.Units[j].ReceivedBytes)
			}
		}
		o.arrives = max(o.arrives, sum)
	}
	root := 0
	for i := len(p.Units) - 1; i >= 0; i-- {
		if p.Units[i].WholeBatch {
			root = i
		}
	}
	first := p.Collectives[p.Units[root].Class]
	o.fixed = p.FixedMs + factors[root]*(first.AllGatherMs+first.ReduceScatterMs)
	var reached []float64 // by class: forward of the last units and of the others, backward of both
	for i, u := range p.Units {
		c, factor := p.Collectives[u.Class], factors[i]
		gather, both := factor*c.AllGatherMs, factor*(c.AllGatherMs+c.ReduceScatterMs)
		reached = append(reached, gather, gather, both, both)
	}
	for rank := range p.Devices {
		o.ways = append(o.ways, o.list(rank))
	}
	o.rank(0, p.GlobalBatch, 0, reached)
	return o.best
}

// oracleSplit is the class of which ranks may keep some units, in the oracle's
// own words: the one whose recomputation of a sample takes longest on all
// devices together. -1 if there is nothing to keep or all is kept.
func oracleSplit(p Problem) int {
	keeps, other := false, false
	for _, policy := range p.Policies {
		keeps, other = keeps || policy == Keep, other || policy != Keep
	}
	at, most := -1, 0.0
	for i, u := range p.Units {
		sum := 0.0
		for _, d := range p.Devices {
			sum += float64(u.Count) * d.Costs[u.Class].ForwardMs.At(1)
		}
		if keeps && other && !u.WholeBatch && u.Count > 1 && sum > most {
			at, most = i, sum
		}
	}
	return at
}

type trial struct {
	p      Problem
	ragged int
	split  int
	kept   int
	even   float64 // bytes of the classes with even shares
	loose  float64 // and of the others
	fixed  float64
	// arrives is what two reductions of ragged classes bring together at most, each of the
	// even share: one after the other, of one class or of neighbours.
	arrives float64
	best    float64
	ways    [][][]way // by rank and batch
}

func (o *trial) time(reached []float64) float64 {
	sum := o.fixed
	for d, t := range reached {
		last, all := 0, o.p.Units[d/4].Count
		if d/4 == o.split {
			last = o.kept
		}
		if d%2 == 0 {
			sum += float64(last) * t
		} else {
			sum += float64(all-last) * t
		}
	}
	return sum
}

// rank tries every way to run every batch on one rank after the other.
func (o *trial) rank(rank, left, ppm int, reached []float64) {
	if o.time(reached) >= o.best {
		return
	}
	if rank == len(o.p.Devices) {
		if left == 0 && (o.ragged == 0 || ppm >= 1_000_000) {
			o.best = o.time(reached)
		}
		return
	}
	next := make([]float64, len(reached))
	for batch := 0; batch <= left; batch++ {
		for _, w := range o.ways[rank][batch] {
			for d := range next {
				next[d] = math.Max(reached[d], w.times[d])
			}
			o.rank(rank+1, left-batch, ppm+w.ppm, next)
		}
	}
}

// way is one way to run a batch on a rank, and the state that fits beside it.
type way struct {
	times []float64
	ppm   int
}

// list works out all ways of a rank, by batch.
func (o *trial) list(rank int) [][]way {
	policies := o.p.Policies
	if len(policies) == 0 {
		policies = []Policy{Recompute}
	}
	byBatch := make([][]way, o.p.GlobalBatch+1)
	for batch := range byBatch {
		if o.p.FixedBatches != nil && o.p.FixedBatches[rank] != batch || o.p.UseAll && batch == 0 {
			continue
		}
		for size := min(1, batch); size <= batch; size++ {
			for _, policy := range policies {
				for _, last := range []int{0, o.kept} {
					times, free, ok := o.try(rank, batch, size, policy, last)
					if !ok {
						continue
					}
					n := len(o.p.Devices)
					share := 1_000_000 / n
					if rank < 1_000_000%n {
						share++
					}
					even := math.Ceil(float64(share) * o.even / 1e6)
					step := o.step(rank) - even
					if free -= even; free < 0 || step < 0 {
						continue
					}
					if o.ragged != 0 {
						part := math.Min(math.Min(free, step)/o.loose, (free+o.arrives)/(o.loose+float64(n)*o.arrives))
						share = int(math.Floor(math.Min(1, part)*1e6 + 1e-9))
					}
					byBatch[batch] = append(byBatch[batch], way{times, share})
					if o.kept == 0 || policy == Keep {
						break
					}
				}
			}
		}
	}
	for batch, ways := range byBatch {
		byBatch[batch] = useful(ways)
	}
	return byBatch
}

// step is the state that leaves the optimizer's step its memory, when nothing else is there.
func (o *trial) step(rank int) float64 {
	d := o.p.Devices[rank]
	if o.p.StepBytesPerParameter == 0 {
		return math.Inf(1)
	}
	return math.Floor(float64(d.UsableMemoryBytes-d.OutsideBytes)/(1+o.p.StepBytesPerParameter/o.p.StateBytesPerParameter) + 1e-6)
}

// useful drops the ways that another one beats in every respect.
func useful(ways []way) []way {
	var kept []way
	for _, w := range ways {
		beaten := func(by way) bool {
			for d, t := range by.times {
				if t > w.times[d] {
					return false
				}
			}
			return by.ppm >= w.ppm
		}
		if slices.ContainsFunc(kept, beaten) {
			continue
		}
		kept = append(kept, w)
	}
	return kept
}

// try is one rank's way to run a batch, keeping the last units of the class that
// is split: its times and the memory left.
func (o *trial) try(rank, batch, size int, policy Policy, last int) ([]float64, float64, bool) {
	d := o.p.Devices[rank]
	next := make([]float64, 4*len(o.p.Units))
	peak, kept, host := 0.0, 0.0, 0.0
	for i, u := range o.p.Units {
		c := d.Costs[u.Class]
		var micro []int
		for left := batch; left > 0; left -= size {
			micro = append(micro, min(size, left))
		}
		if u.WholeBatch || batch == 0 {
			micro = []int{batch}
		}
		f := float64(len(micro)-1) * o.p.MicrobatchOverheadMs.Forward
		w := float64(len(micro)-1) * o.p.MicrobatchOverheadMs.Backward
		again := 0.0
		for _, m := range micro {
			f += c.ForwardMs.At(m)
			w += c.BackwardMs.At(m)
			if policy != Keep && !u.WholeBatch {
				again += c.ForwardMs.At(m)
			}
			memory := c.MemoryBytes
			if policy == Keep && !u.WholeBatch {
				memory = c.withoutKept()
			}
			peak = math.Max(peak, memory.At(m))
		}
		keep := 0
		if i == o.split {
			keep = last
		}
		next[4*i], next[4*i+2] = f, w
		w += again
		if policy == Offload {
			f = math.Max(f, c.OffloadMsPerSample*float64(batch))
			w = math.Max(w, c.OffloadMsPerSample*float64(batch))
			host += float64((u.Count-keep)*batch) * math.Max(0, c.KeptBytesPerSample[Recompute]-c.KeptBytesPerSample[Offload])
		}
		next[4*i+1], next[4*i+3] = f, w
		if keep == 0 { // the last units are as the others
			next[4*i], next[4*i+2] = f, w
		}
		if !u.Held {
			beside := o.p.Collectives[u.Class]
			for pass := range 4 {
				link := beside.AllGatherMs
				if pass > 1 {
					link += beside.ReduceScatterMs
				}
				if o.ragged>>i&1 == 1 {
					link *= o.p.RaggedFactor
				}
				// Side by side for as long as both run, less what that loses.
				alone := next[4*i+pass]
				next[4*i+pass] = alone + link - (1-u.OverlapLoss)*math.Min(alone, link)
			}
		}
		kept += float64((u.Count-keep)*batch)*c.KeptBytesPerSample[policy] + float64(keep*batch)*c.KeptBytesPerSample[Keep]
	}
	free := float64(d.UsableMemoryBytes-d.ReservedBytes) - math.Ceil(peak) - math.Ceil(kept)
	fits := free >= 0 && (d.HostMemoryBytes == 0 || math.Ceil(host) <= float64(d.HostMemoryBytes))
	return next, free, fits
}
