package solver

// portion says which units of a class a step runs over.
type portion int

const (
	allUnits   portion = iota
	lastUnits          // those that a rank may keep although it does not keep the others
	otherUnits         // the others
)

// stepOf is one pass over units that the plan may treat differently from others.
type stepOf struct {
	class    int
	backward bool
	portion  portion
}

// steps are the passes that an iteration consists of: a forward and a backward
// of every class. Those of the class that may be kept in part are two, where
// keeping changes them.
func (m *model) steps() []stepOf {
	offloads := m.policies[len(m.policies)-1] == Offload
	var out []stepOf
	for i := range m.problem.Units {
		for _, backward := range [2]bool{false, true} {
			if i == m.split && (backward || offloads) {
				out = append(out, stepOf{i, backward, lastUnits}, stepOf{i, backward, otherUnits})
				continue
			}
			out = append(out, stepOf{i, backward, allUnits})
		}
	}
	return out
}

// weights are the numbers of units that the steps run over, if so many units
// may be kept.
func (m *model) weights(kept int) []float64 {
	var out []float64
	for _, s := range m.steps() {
		count := m.problem.Units[s.class].Count
		switch s.portion {
		case lastUnits:
			count = kept
		case otherUnits:
			count -= kept
		}
		out = append(out, float64(count))
	}
	return out
}

// mostKept is the largest number of units of the class that may be kept in
// part; 0 without one.
func (m *model) mostKept() int {
	if m.split < 0 {
		return 0
	}
	return m.problem.Units[m.split].Count - 1
}

// splitting is the model in which a rank may keep the last units of a class, as
// many as every other rank that keeps some. It is the class that takes longest
// to recompute. Nil if keeping makes no difference to any.
func (m *model) splitting() *model {
	last := m.policies[len(m.policies)-1]
	if m.policies[0] != Keep || last == Keep {
		return nil
	}
	class, most := -1, 0.0
	for i, u := range m.problem.Units {
		if u.WholeBatch || u.Count < 2 {
			continue
		}
		again := 0.0
		for _, k := range m.kinds {
			again += float64(len(k.ranks)*u.Count) * k.costs[i].ForwardMs.At(1)
		}
		if again > most {
			class, most = i, again
		}
	}
	if class < 0 {
		return nil
	}
	out := *m
	out.split = class
	return out.bounded()
}
