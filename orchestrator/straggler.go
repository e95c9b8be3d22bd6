package orchestrator

import (
	"fmt"
	"slices"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

const (
	// stragglerSteps is over how many steps a rank is judged.
	stragglerSteps = 20
	// A rank is named when it computes by so much longer than its part should take, next
	// to the others, and may be named again once it was back below the second number.
	stragglerNamed   = 1.5
	stragglerForgets = 1.2
)

// stragglers names ranks that compute for longer than their part should take. Waiting
// does not count, so that the slow rank is named and not those that wait for it.
type stragglers struct {
	expected []float64 // compute of a step by the plan, by rank
	recent   []show.Step
	named    []bool
}

// straggler is one rank that is slow.
type straggler struct {
	rank              int
	computeMs, overMs float64
}

func newStragglers(plan solver.Plan) *stragglers {
	return &stragglers{named: make([]bool, len(plan.Ranks)), expected: expectedCompute(plan)}
}

// add takes a step and returns the ranks to name now.
func (s *stragglers) add(step show.Step) []straggler {
	if len(step.Ranks) != len(s.expected) || len(s.expected) < 2 {
		return nil
	}
	s.recent = append(s.recent, step)
	if len(s.recent) < stragglerSteps {
		return nil
	}
	steps := s.recent
	s.recent = nil
	compute, ratios := make([]float64, len(s.expected)), make([]float64, len(s.expected))
	for i, expected := range s.expected {
		compute[i] = medianOf(steps, func(st show.Step) float64 { return st.Ranks[i].ComputeMs })
		ratios[i] = compute[i] / max(expected, 1e-3)
	}
	var found []straggler
	for i := range ratios {
		others := middle(slices.Delete(slices.Clone(ratios), i, i+1))
		over := ratios[i] / max(others, 1e-9)
		switch {
		case over > stragglerNamed && !s.named[i] && s.expected[i] > 0:
			s.named[i] = true
			found = append(found, straggler{rank: i, computeMs: compute[i], overMs: compute[i] - s.expected[i]*others})
		case over < stragglerForgets:
			s.named[i] = false
		}
	}
	return found
}

// middle is the median.
func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// nameStragglers says which ranks the others wait for.
func (s *session) nameStragglers(step show.Step) {
	for _, slow := range s.stragglers.add(step) {
		name := s.devices.Chosen[slow.rank].Name
		text := fmt.Sprintf("rank %d (%s) computes for %s in a step, %s longer than its part should take beside the others, which wait for it",
			slow.rank, name, show.Ms(slow.computeMs), show.Ms(slow.overMs))
		s.screen.say("note: %s", text)
		s.keep(events.Event{Time: s.deps.Now(), Kind: events.Straggler, Rank: slow.rank, Message: text, ComputeMs: slow.computeMs, Step: step.Number})
	}
}
