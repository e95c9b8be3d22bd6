package solver

// whatIfBoxes bounds the search for what a change would bring: plans that are
// only spoken of need not be the best to the last digit.
const whatIfBoxes = 25

// whatIfKinds bounds how many kinds of devices are asked what would be if; the
// most idle come first.
const whatIfKinds = 8

// whatIfMargin is how far beyond the plan's time options are made once for all
// questions.
const whatIfMargin = 1.01

// noticeable is the least gain that is worth a sentence.
const noticeable = 1e-3

// whatIf solves problems that differ little from a model whose plan takes
// nowMs: most devices and so most options are the same.
type whatIf struct {
	m      *model
	nowMs  float64
	donors []*catalogue // one for each variant of the model
}

// solve is the search that found nearly the fastest picks below a time; nil if
// there are none.
func (w *whatIf) solve(p Problem, below float64) (*search, error) {
	m, err := newModel(p)
	if err != nil {
		return nil, err
	}
	return w.ask(m, below), nil
}

func (w *whatIf) ask(m *model, below float64) *search {
	m.boxes = whatIfBoxes
	variants := m.variants()
	if w.donors == nil {
		for _, c := range w.m.variants() {
			donor := catalogueOver(c.m, make([]overlap, len(m.steps())))
			donor.upTo(w.nowMs * whatIfMargin)
			w.donors = append(w.donors, donor)
		}
	}
	for i, c := range variants {
		c.donor = w.donors[i]
	}
	s, _ := m.fastest(variants, below)
	return s
}

// withMemory is the search with so many bytes more on every device of a kind;
// nil if that brings nothing.
func (w *whatIf) withMemory(k *kind, bytes int64) (*search, error) {
	return w.solve(w.more(k, bytes), w.nowMs)
}

// reaches says whether so much more memory allows less than a time.
func (w *whatIf) reaches(k *kind, bytes int64, below float64) (bool, error) {
	m, err := newModel(w.more(k, bytes))
	if err != nil {
		return false, err
	}
	m.hasty = true
	return w.ask(m, below) != nil, nil
}

// more is the problem with so many bytes more on every device of a kind.
func (w *whatIf) more(k *kind, bytes int64) Problem {
	p := w.m.problem
	p.Devices = append([]Device(nil), p.Devices...)
	for _, rank := range k.ranks {
		p.Devices[rank].UsableMemoryBytes = min(maxBytes, p.Devices[rank].UsableMemoryBytes+bytes)
	}
	return p
}
