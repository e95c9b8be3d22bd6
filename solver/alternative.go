package solver

import (
	"errors"
	"fmt"
)

// evenRun is the best even split under one way to accumulate, or why there is none.
type evenRun struct {
	a    Allocation
	cost Prediction
	err  error
}

func (m *model) evenRun(ordinary bool) evenRun {
	a, cost, err := m.even(ordinary)
	return evenRun{a, cost, err}
}

// alternatives are the even splits beside a plan. What is true of both is said once.
func (m *model) alternatives(planMs float64) []Alternative {
	layered, ordinary := m.evenRun(false), m.evenRun(true)
	list := []Alternative{m.alternative(StrategyEven, layered, planMs), m.alternative(StrategyEvenOrdinary, ordinary, planMs)}
	if same := layered.same(ordinary); same != "" {
		list[1].Reason = same
	}
	return list
}

// same says in what ordinary accumulation is like layered one, if it is.
func (r evenRun) same(ordinary evenRun) string {
	var one, other *InfeasibleError
	switch {
	case errors.As(r.err, &one) && errors.As(ordinary.err, &other):
		if one.Rank == other.Rank && one.MissingBytes == other.MissingBytes {
			return fmt.Sprintf("device %d (%s) lacks the same %s as with %s", other.Rank, other.Device, amount(other.MissingBytes), StrategyEven)
		}
	case r.err == nil && ordinary.err == nil:
		if pieces := len(ordinary.a.Ranks[0].MicroBatches); pieces <= 1 && tidy(r.cost.IterationMs) == tidy(ordinary.cost.IterationMs) {
			return fmt.Sprintf("the same as %s, with one microbatch on a device", StrategyEven)
		}
	}
	return ""
}

// alternative says what an even strategy would cost beside a plan.
func (m *model) alternative(strategy string, r evenRun, planMs float64) Alternative {
	var none *InfeasibleError
	if errors.As(r.err, &none) {
		return Alternative{Strategy: strategy, Reason: none.lacks()}
	}
	if r.err != nil {
		return Alternative{Strategy: strategy, Reason: r.err.Error()}
	}
	how := count(r.a.Ranks[0].Batch, "sample") + " on every device"
	if m.problem.GlobalBatch%len(r.a.Ranks) != 0 {
		how = "at most " + count(r.a.Ranks[0].Batch, "sample") + " on a device"
	}
	if r.a.Ordinary {
		if pieces := len(r.a.Ranks[0].MicroBatches); pieces == 1 {
			how += " as one microbatch"
		} else {
			how += fmt.Sprintf(", all parameters gathered for each of the %d microbatches", pieces)
		}
	}
	return Alternative{Strategy: strategy, IterationMs: tidy(r.cost.IterationMs),
		Reason: fmt.Sprintf("%s: %s; %s", beside(r.cost.IterationMs, planMs), how, m.bottleneck(r.cost))}
}

// beside is a time against the plan's, in words.
func beside(ms, planMs float64) string {
	if planMs == 0 {
		return "as fast as the plan"
	}
	ratio := ms / planMs
	percent := 100 * (ratio - 1)
	switch {
	case ratio >= 1.1:
		return fmt.Sprintf("%.2f times the plan's time", ratio)
	case percent >= 0.05:
		return fmt.Sprintf("%.1f %% more time than the plan", percent)
	case percent > -0.05:
		return "as fast as the plan"
	}
	return fmt.Sprintf("%.1f %% less time than the plan", -percent)
}
