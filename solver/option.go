package solver

import (
	"math"
	"slices"
)

// option is one way to give a kind of device a batch.
type option struct {
	batch  int
	micro  int // the size of all microbatches but the last; 0 without samples
	policy Policy
	times  []float64 // of ONE unit, by step
	room   int64     // what is left for state, and for what units keep in part
	partly *partly   // nil if all units of a class are treated alike
}

// cuts of the option: as many full microbatches as go, and one of the rest.
func (o option) cuts() []cut {
	if o.batch == 0 {
		return nil
	}
	cuts := []cut{{o.micro, o.batch / o.micro}}
	if rest := o.batch % o.micro; rest > 0 {
		cuts = append(cuts, cut{rest, 1})
	}
	return cuts
}

// microBatches lists the sizes one by one.
func (o option) microBatches() []int {
	out := []int{}
	for _, c := range o.cuts() {
		for range c.count {
			out = append(out, c.size)
		}
	}
	return out
}

// menu makes the options of one kind, batch by batch.
type menu struct {
	m       *model
	k       *kind
	weights []float64
	beside  []overlap
	// tables by class and sample count, grown when needed
	forward, backward, memory, keptPeak [][]float64
	// regular is the sample count from which on every cost is a rising line,
	// -1 if there is no such count.
	regular int
	list    []int     // scratch
	front   []*option // likewise
	rates   []float64 // least times per sample, by step
	steps   []stepOf
	shelf   shelf
}

func newMenu(m *model, k *kind, beside []overlap) *menu {
	n := len(k.costs)
	u := &menu{m: m, k: k, weights: m.weights(m.mostKept()), beside: beside, rates: ratesOf(m, k), steps: m.steps(),
		forward: make([][]float64, n), backward: make([][]float64, n), memory: make([][]float64, n), keptPeak: make([][]float64, n)}
	for i, c := range k.costs {
		if m.problem.Units[i].WholeBatch {
			continue
		}
		for _, cost := range []Cost{c.ForwardMs, c.BackwardMs, c.MemoryBytes, c.keptPeak} {
			last := cost.last()
			if cost.Tail.Slope < 0 || cost.Tail.Slope*float64(last+1)+cost.Tail.Intercept < 0 {
				last = math.MaxInt32
			}
			u.regular = max(u.regular, last)
		}
	}
	if u.regular == math.MaxInt32 {
		u.regular = -1
	}
	return u
}

// grow fills the tables up to n samples.
func (u *menu) grow(n int) {
	for i, c := range u.k.costs {
		for s := len(u.forward[i]); s <= n; s++ {
			u.forward[i] = append(u.forward[i], c.ForwardMs.At(s))
			u.backward[i] = append(u.backward[i], c.BackwardMs.At(s))
			u.memory[i] = append(u.memory[i], c.MemoryBytes.At(s))
			u.keptPeak[i] = append(u.keptPeak[i], c.keptPeak.At(s))
		}
	}
}

// sizes calls yield with every microbatch size of a batch that can matter.
// Where all costs are lines, two sizes that give equally many microbatches and
// whose rests lie on the lines too cost the same time: the smallest is enough.
func (u *menu) sizes(batch int, yield func(int)) {
	small := batch
	if u.regular >= 0 {
		small = min(batch, u.regular)
	}
	for size := 1; size <= small; size++ {
		yield(size)
	}
	for size := small + 1; size <= batch; {
		count := batch / size
		end := batch / count // the largest size with this count
		yield(size)
		// the rest shrinks as the size grows; below the lines every size counts
		next := max(size+1, (batch-u.regular+count-1)/count)
		for s := next; s <= end; s++ {
			yield(s)
		}
		size = end + 1
	}
}

// of lists the options of a batch that fit the memory, cost at most limit by
// themselves, and are not beaten in every respect by another. Of equals the
// first policy and the larger microbatch stays. The list holds until the next call.
func (u *menu) of(batch int, limit float64) []*option {
	u.grow(batch)
	front := u.front[:0]
	times := make([]float64, len(u.beside))
	consider := func(size int, policy Policy, p *partly) {
		o := option{batch: batch, micro: size, policy: policy, times: times, partly: p}
		if o.room = u.load(&o); o.roomAt(1) < 0 || u.total(times) > limit {
			return
		}
		for _, other := range front {
			if other.beats(&o) {
				return
			}
		}
		front = slices.DeleteFunc(front, o.beats)
		front = append(front, u.shelf.keep(o))
	}
	for _, policy := range u.m.policies {
		if batch == 0 {
			consider(0, policy, nil)
			continue
		}
		list := u.list[:0]
		u.sizes(batch, func(size int) { list = append(list, size) })
		u.list = list
		for _, size := range slices.Backward(list) {
			consider(size, policy, nil)
		}
		if u.m.split < 0 || policy == Keep {
			continue
		}
		p := u.partlyKept(batch, policy)
		if p == nil {
			continue
		}
		for _, size := range slices.Backward(list) {
			consider(size, policy, p)
		}
	}
	u.front = front
	return front
}

func noneAbove(a, b []float64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// total is what an iteration would take at least if this device had these times.
func (u *menu) total(times []float64) float64 {
	sum := 0.0
	for d, t := range times {
		sum += u.weights[d] * u.beside[d].with(t)
	}
	return sum
}

// load is loadOf from the tables, for floor(batch/micro) microbatches and a
// rest. It fills in the option's times, and what it keeps in part, and returns
// the room.
func (u *menu) load(o *option) int64 {
	batch, size, policy := o.batch, o.micro, o.policy
	full, rest := 0, 0
	if batch > 0 {
		full, rest = batch/size, batch%size
	}
	memory := u.memory
	if policy == Keep {
		memory = u.keptPeak
	}
	peak, kept, host := 0.0, 0.0, 0.0
	over := u.m.problem.MicrobatchOverheadMs
	d := 0
	for i, class := range u.m.problem.Units {
		c := &u.k.costs[i]
		var f, w float64
		pieces := 1
		if class.WholeBatch || batch == 0 {
			f, w = u.forward[i][batch], u.backward[i][batch]
			peak = max(peak, memory[i][batch])
		} else {
			f, w = float64(full)*u.forward[i][size], float64(full)*u.backward[i][size]
			peak = max(peak, memory[i][size])
			pieces = full
			if rest > 0 {
				f, w, pieces = f+u.forward[i][rest], w+u.backward[i][rest], pieces+1
				peak = max(peak, memory[i][rest])
			}
		}
		again := 0.0
		if !class.WholeBatch && policy != Keep {
			again = f
		}
		f += float64(pieces-1) * over.Forward
		w += float64(pieces-1) * over.Backward
		keeping := [2]float64{f, w}
		w += again
		units := float64(class.Count)
		kept += units * c.kept[policy.index()] * float64(batch)
		if policy == Offload {
			copied := float64(batch) * c.OffloadMsPerSample
			f, w = max(f, copied), max(w, copied)
			host += units * max(0, c.kept[Recompute.index()]-c.kept[Offload.index()]) * float64(batch)
		}
		for ; d < len(u.steps) && u.steps[d].class == i; d++ {
			pass := [2]float64{f, w}
			if o.partly != nil && u.steps[d].portion == lastUnits {
				pass = keeping
			}
			ms := pass[0]
			if u.steps[d].backward {
				ms = pass[1]
			}
			o.times[d] = ms
		}
	}
	l := load{peakBytes: wholeBytes(peak)}
	if o.partly == nil {
		l.keptBytes, l.hostBytes = wholeBytes(kept), wholeBytes(host)
	} else {
		o.partly.kept, o.partly.host = kept, host
	}
	return u.k.room(l)
}
