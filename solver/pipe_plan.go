package solver

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// replicas are pipelines beside each other, each with a copy of the model.
type replicas struct {
	pipes  []pipeline
	rounds []int // microbatches of each
	micro  int
	policy Policy
	ms     float64
}

// limit is the time that another division must beat.
func (r replicas) limit() float64 {
	if r.ms == 0 {
		return math.Inf(1)
	}
	return r.ms
}

// pipeable says whether there is something to cut into stages.
func (m *model) pipeable(strategy string) ([]int, error) {
	row := m.chain()
	if len(row) < 2 {
		return nil, &InapplicableError{strategy, "the profile has one unit for the whole model, so there is nothing to cut into stages"}
	}
	if len(row) > mostUnits {
		return nil, &InapplicableError{strategy, fmt.Sprintf("a chain of %d units is longer than the %d that are divided into stages", len(row), mostUnits)}
	}
	return row, nil
}

// microSizes are the microbatches to try: what divides the batch, up to 64.
func microSizes(batch int) []int {
	var out []int
	for size := 1; size <= min(batch, 64); size++ {
		if batch%size == 0 {
			out = append(out, size)
		}
	}
	return out
}

// reduceMs is the all-reduce of the gradients of every stage among the
// replicas, after the last backward pass: the slowest of them counts.
func (m *model) reduceMs(row []int, pipes []pipeline) float64 {
	if len(pipes) < 2 {
		return 0
	}
	slowest := 0.0
	for _, p := range pipes {
		for s, stage := range p.stages {
			bytes := 0.0
			for i := stage.first; i < stage.end; i++ {
				bytes += float64(m.problem.Units[row[i]].TrainableParameters) * gradientBytes
			}
			var ranks []int // whoever holds the first unit of the stage
			for _, other := range pipes {
				for t, o := range other.stages {
					if o.first <= stage.first && stage.first < o.end {
						ranks = append(ranks, other.teams[t][0])
					}
				}
			}
			slowest = max(slowest, m.ringMs(bytes/float64(len(p.teams[s])), ranks...))
		}
	}
	return slowest
}

// outcome of the replicas; ranks without a stage stand idle.
func (m *model) pipeOutcome(r replicas) Outcome {
	o := Outcome{IterationMs: tidy(r.ms)}
	if r.ms > 0 {
		o.SamplesPerSecond = tidy(float64(m.problem.GlobalBatch) * 1000 / r.ms)
	}
	for i, d := range m.problem.Devices {
		o.Ranks = append(o.Ranks, RankOutcome{Rank: i, Device: label(d), UsableBytes: d.UsableMemoryBytes})
	}
	var words []string
	for i, p := range r.pipes {
		var stages []string
		for s, stage := range p.stages {
			for _, rank := range p.teams[s] {
				own := &o.Ranks[rank]
				own.Batch, own.MicroBatches = r.rounds[i]*r.micro, slices.Repeat([]int{r.micro}, r.rounds[i])
				own.Units, own.Team, own.Activations = stage.end-stage.first, len(p.teams[s]), r.policy
				own.ComputeMs = float64(r.rounds[i]) * stage.computeMs
				own.MemoryBytes = m.problem.Devices[rank].ReservedBytes + wholeBytes(stage.bytes)
			}
			stages = append(stages, fmt.Sprintf("%s on %s", count(stage.end-stage.first, "unit"), m.teamName(p.teams[s])))
		}
		words = append(words, fmt.Sprintf("%d x %s through %s", r.rounds[i], count(r.micro, "sample"), strings.Join(shorten(stages), ", ")))
	}
	o.How = fmt.Sprintf("%s; activations: %s", strings.Join(shorten(words), " | "), r.policy)
	return o
}

// teamName names the devices of a team, those of one name together.
func (m *model) teamName(t team) string {
	var names []string
	many := map[string]int{}
	for _, rank := range t {
		name := label(m.problem.Devices[rank])
		if many[name] == 0 {
			names = append(names, name)
		}
		many[name]++
	}
	for i, name := range names {
		if n := many[name]; n > 1 {
			names[i] = fmt.Sprintf("%dx %s", n, name)
		}
	}
	return strings.Join(names, " + ")
}

// shorten keeps the first of many.
func shorten(words []string) []string {
	const most = 8
	if len(words) <= most {
		return words
	}
	return append(words[:most:most], fmt.Sprintf("and %d more", len(words)-most))
}

// noPipe is why no division fits: all devices together, or one stage.
func (m *model) noPipe(strategy string) error {
	room, largest := int64(0), 0
	for i, d := range m.problem.Devices {
		room += max(0, d.UsableMemoryBytes-d.ReservedBytes)
		if d.UsableMemoryBytes > m.problem.Devices[largest].UsableMemoryBytes {
			largest = i
		}
	}
	e := &InfeasibleError{Rank: largest, Device: label(m.problem.Devices[largest]),
		Detail: fmt.Sprintf("%s found no stages that keep to every device's memory", strategy),
		Remedy: "a smaller batch, more memory or fewer replicas"}
	e.MissingBytes = max(1, m.stateBytes-room)
	return e
}

// each calls try with every policy that pipelines can use and every microbatch
// size. Offloading is left out: none of these systems does it.
func (m *model) eachPipe(try func(micro int, policy Policy)) error {
	tried := false
	for _, policy := range m.policies {
		if policy == Offload {
			continue
		}
		tried = true
		for _, micro := range microSizes(m.problem.GlobalBatch) {
			try(micro, policy)
		}
	}
	if !tried {
		return errors.New("only offloading is allowed")
	}
	return nil
}
