package solver

import (
	"errors"
	"fmt"
)

// Strategy is a way to divide a problem among its devices. All strategies
// predict from the same costs; each says in its doc comment what it assumes
// and where that comes from. What a strategy cannot know (a link that the
// problem does not state) costs it nothing.
type Strategy interface {
	Name() string
	// Predict says what the problem costs. If nothing fits, the error is an
	// *InfeasibleError or an *InapplicableError.
	Predict(p Problem) (Outcome, error)
}

// Outcome is what a strategy makes of a problem.
type Outcome struct {
	Strategy string
	// IterationMs and SamplesPerSecond are 0 if the strategy cannot run it.
	IterationMs, SamplesPerSecond float64
	// How is what the strategy does, or why it cannot run.
	How   string
	Ranks []RankOutcome
}

// RankOutcome is one rank's part.
type RankOutcome struct {
	Rank   int
	Device string
	// Batch is what passes through the rank. In a pipeline that is all that its replica
	// gets, on every rank of it, so that the batches do not sum to the global one.
	Batch        int
	MicroBatches []int
	// Units is how many units a rank of a pipeline holds, with Team ranks together; 0 for
	// ranks that all run the whole model.
	Units, Team   int
	Activations   Policy
	KeptUnits     map[string]int
	StatePPM      int
	ClassStatePPM map[string]int
	ComputeMs     float64
	MemoryBytes   int64
	UsableBytes   int64
}

// Fits says that the strategy can run the problem.
func (o Outcome) Fits() bool { return o.IterationMs > 0 }

// Utilisation is the share of the iteration in which a device computes, in the
// mean over all devices.
func (o Outcome) Utilisation() float64 {
	if !o.Fits() || len(o.Ranks) == 0 {
		return 0
	}
	sum := 0.0
	for _, r := range o.Ranks {
		sum += min(1, r.ComputeMs/o.IterationMs)
	}
	return sum / float64(len(o.Ranks))
}

// InapplicableError says that a strategy cannot treat such a problem at all.
type InapplicableError struct{ Strategy, Reason string }

// Error is one clause.
func (e *InapplicableError) Error() string {
	return fmt.Sprintf("%s cannot run this: %s", e.Strategy, e.Reason)
}

// Strategies are all of them, the planner's own first.
func Strategies() []Strategy {
	return []Strategy{cephalo{}, even{}, even{ordinary: true}, computeBalance{}, memoryBalance{}, megatronHet{}, flashFlex{}}
}

// Compare asks every strategy. One that cannot run the problem has no time and
// says why; only a faulty problem is an error.
func Compare(p Problem) ([]Outcome, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var out []Outcome
	said := map[string]string{} // why, by the first strategy that does not run for it
	for _, s := range Strategies() {
		o, err := s.Predict(p)
		var none *InfeasibleError
		var unfit *InapplicableError
		switch {
		case errors.As(err, &none):
			o = Outcome{How: "does not fit: " + none.lacks()}
		case errors.As(err, &unfit):
			o = Outcome{How: err.Error()}
		case err != nil:
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
		if o.Strategy = s.Name(); !o.Fits() {
			if first, again := said[o.How]; again {
				o.How = "does not fit, for the same reason as " + first
			} else {
				said[o.How] = o.Strategy
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// outcome is the prediction of an allocation in the words of a comparison.
func (m *model) outcome(a Allocation, cost Prediction, how string) Outcome {
	o := Outcome{IterationMs: tidy(cost.IterationMs), SamplesPerSecond: tidy(cost.SamplesPerSecond), How: how}
	for i, r := range cost.Ranks {
		own := a.Ranks[i]
		o.Ranks = append(o.Ranks, RankOutcome{Rank: i, Device: label(m.problem.Devices[i]), Batch: own.Batch, MicroBatches: own.MicroBatches,
			Activations: own.Activations, KeptUnits: own.KeptUnits, StatePPM: own.StatePPM, ClassStatePPM: own.ClassStatePPM,
			ComputeMs: r.ForwardMs + r.BackwardMs, MemoryBytes: r.MemoryBytes(), UsableBytes: r.UsableBytes})
	}
	return o
}
