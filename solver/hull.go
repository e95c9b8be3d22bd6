package solver

// step is one edge of the upper hull of a group.
type step struct {
	group, from, to int
	rise, gain      int // in batch and value
}

// before says that the relaxation takes step a before step b: more value per
// sample first, then the lower group, then the smaller batch.
func (a step) before(b step) bool {
	if x, y := a.gain*b.rise, b.gain*a.rise; x != y {
		return x > y
	}
	if a.group != b.group {
		return a.group < b.group
	}
	return a.from < b.from
}

// hulls lists the edges of all upper hulls. Points on an edge are kept as
// corners, so that edges are short.
func (k *knapsack) hulls() {
	k.steps = k.steps[:0]
	for g, group := range k.groups {
		c, hull := group.choices, k.hull[:0]
		for i := range c {
			for len(hull) > 1 {
				a, b := c[hull[len(hull)-2]], c[hull[len(hull)-1]]
				if (b.value-a.value)*(c[i].batch-b.batch) >= (c[i].value-b.value)*(b.batch-a.batch) {
					break
				}
				hull = hull[:len(hull)-1]
			}
			hull = append(hull, i)
		}
		for i := 1; i < len(hull); i++ {
			a, b := hull[i-1], hull[i]
			k.steps = append(k.steps, step{g, a, b, c[b].batch - c[a].batch, c[b].value - c[a].value})
		}
		k.hull = hull
	}
}

// climb takes steps, the best first, until they have taken what is left: the
// last of them, which may be taken by some devices only, sets the price. The
// steps need no order for that: parts are looked at until one step remains.
func (k *knapsack) climb(left int) {
	k.hulls()
	k.at = k.at[:0]
	for range k.groups {
		k.at = append(k.at, 0)
	}
	if left == 0 {
		return
	}
	steps := k.steps
	for len(steps) > 1 {
		pivot := middle(steps[0], steps[len(steps)/2], steps[len(steps)-1])
		n, sum := 0, 0 // the steps up to the pivot come to the front
		for i, s := range steps {
			if !pivot.before(s) {
				sum += s.rise * k.groups[s.group].devices
				steps[i], steps[n] = steps[n], s
				n++
			}
		}
		if sum < left {
			left -= sum
			k.take(steps[:n])
			steps = steps[n:]
			continue
		}
		// the pivot is one of them, so go on without it if those before it are enough
		for i := range n {
			if steps[i] == pivot {
				steps[i], steps[n-1] = steps[n-1], steps[i]
				break
			}
		}
		if last := pivot.rise * k.groups[pivot.group].devices; sum-last < left {
			k.take(steps[:n-1])
			steps = steps[n-1 : n]
			break
		}
		steps = steps[:n-1]
	}
	k.price = steps[0]
}

// take moves groups up to the ends of steps.
func (k *knapsack) take(steps []step) {
	for _, s := range steps {
		k.at[s.group] = max(k.at[s.group], s.to)
	}
}

// middle is the one of three steps that lies between the others.
func middle(a, b, c step) step {
	if b.before(a) {
		a, b = b, a
	}
	if c.before(a) {
		return a
	}
	if c.before(b) {
		return c
	}
	return b
}
