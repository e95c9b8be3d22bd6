package solver

import "math"

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
	m       *model
	nowMs   float64
	allBusy bool         // the plan has samples for every rank
	donors  []*catalogue // one for each variant of the model
}

// solve is the search that found nearly the fastest picks below a time; nil if
// there are none.
func (w *whatIf) solve(p Problem, below float64) (*search, error) {
	return w.search(p, below, false)
}

// search is solve; a hasty one may stop at anything below the time. What is to have
// samples on all ranks where possible has them here as well.
func (w *whatIf) search(p Problem, below float64, hasty bool) (*search, error) {
	if p.prefersAll() {
		m, err := newModel(p.withAll())
		if err != nil {
			return nil, err
		}
		m.hasty = hasty
		if s := w.ask(m, below); s != nil {
			return s, nil
		}
		if !math.IsInf(below, 1) && (w.allBusy || w.ask(m, math.Inf(1)) != nil) {
			return nil, nil // there is such a plan, and it takes longer
		}
	}
	m, err := newModel(p)
	if err != nil {
		return nil, err
	}
	m.hasty = hasty
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
	s, err := w.search(w.more(k, bytes), below, true)
	return s != nil, err
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
