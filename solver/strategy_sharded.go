package solver

import "fmt"

// cephalo is the planner itself: uneven batches and state, layered
// accumulation, exact (docs/planner.md).
type cephalo struct{}

var _ Strategy = cephalo{}

// Name implements Strategy.
func (cephalo) Name() string { return StrategyCephalo }

// Predict implements Strategy.
func (cephalo) Predict(p Problem) (Outcome, error) {
	m, err := newModel(p)
	if err != nil {
		return Outcome{}, err
	}
	a, err := m.solve()
	if err != nil {
		return Outcome{}, err
	}
	cost, err := m.evaluate(a)
	if err != nil {
		return Outcome{}, err
	}
	return m.outcome(a, cost, fmt.Sprintf("%s shares; %s", a.Shares, m.planBottleneck(a, cost))), nil
}

// even is stock FSDP2 (torch.distributed.fsdp.fully_shard): equal batches,
// equal state, one microbatch size and one activation policy everywhere, the
// best that memory allows. Under ordinary accumulation, which is what FSDP2
// does by itself, every microbatch gathers all parameters again and reduces
// all gradients; under layered accumulation that is done once per step.
type even struct{ ordinary bool }

var _ Strategy = even{}

// Name implements Strategy.
func (e even) Name() string {
	if e.ordinary {
		return StrategyEvenOrdinary
	}
	return StrategyEven
}

// Predict implements Strategy.
func (e even) Predict(p Problem) (Outcome, error) {
	p = p.free()
	m, err := newModel(p)
	if err != nil {
		return Outcome{}, err
	}
	a, cost, err := m.even(e.ordinary)
	if err != nil {
		return Outcome{}, err
	}
	return m.outcome(a, cost, fmt.Sprintf("%s in %s; %s", m.each(a), pieces(len(a.Ranks[0].MicroBatches)), m.bottleneck(cost))), nil
}

// memoryBalance divides the state by memory and nothing by speed: every device
// gets the same batch, and as much state as memory leaves room for. It is what
// uneven sharding alone brings (Cephalo, arXiv 2411.01075, section on memory
// balancing). Microbatches, policies and the division of the state are the best
// that there are, and accumulation is layered, which favours it.
type memoryBalance struct{}

var _ Strategy = memoryBalance{}

// Name implements Strategy.
func (memoryBalance) Name() string { return StrategyMemoryBalance }

// Predict implements Strategy.
func (memoryBalance) Predict(p Problem) (Outcome, error) {
	p = p.free()
	p.Shares = RaggedShares
	n := len(p.Devices)
	for i := range p.Devices {
		batch := p.GlobalBatch / n
		if i < p.GlobalBatch%n {
			batch++
		}
		p.FixedBatches = append(p.FixedBatches, batch)
	}
	m, err := newModel(p)
	if err != nil {
		return Outcome{}, err
	}
	a, err := m.solve()
	if err != nil {
		return Outcome{}, err
	}
	cost, err := m.evaluate(a)
	if err != nil {
		return Outcome{}, err
	}
	return m.outcome(a, cost, fmt.Sprintf("%s; %s", m.each(a), m.bottleneck(cost))), nil
}

// free is the problem without what was set by hand for our own plan.
func (p Problem) free() Problem {
	p.FixedBatches, p.UseAll, p.used, p.Shares = nil, false, nil, ""
	return p
}

// each is the batch of all devices, as far as it is the same.
func (m *model) each(a Allocation) string {
	if m.problem.GlobalBatch%len(a.Ranks) != 0 {
		return "at most " + count(a.Ranks[0].Batch, "sample") + " each"
	}
	return count(a.Ranks[0].Batch, "sample") + " each"
}

func pieces(n int) string {
	switch n {
	case 0:
		return "no microbatch"
	case 1:
		return "one microbatch"
	}
	return fmt.Sprintf("%d microbatches", n)
}
