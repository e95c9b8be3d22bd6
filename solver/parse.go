package solver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ParsePlan reads a plan document and validates it. Every fault is reported
// with the path of its field.
func ParsePlan(data []byte) (Plan, error) {
	var p Plan
	if err := decodeStrict(data, &p); err != nil {
		return Plan{}, fmt.Errorf("plan: %w", err)
	}
	if err := p.Validate(); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// Marshal is the canonical document: two spaces, fields in fixed order, one
// newline at the end.
func (p Plan) Marshal() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p.Ranks = slices.Clone(p.Ranks)
	for i := range p.Ranks {
		if p.Ranks[i].MicroBatches == nil {
			p.Ranks[i].MicroBatches = []int{}
		}
	}
	if p.Alternatives == nil {
		p.Alternatives = []Alternative{}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	return out.Bytes(), nil
}

// Validate checks that the plan is whole and agrees with itself: batches and
// shares add up, microbatches cover batches, and every rank fits its memory.
func (p Plan) Validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if p.Version != PlanVersion {
		return fmt.Errorf("plan: version: this is version %d, and only version %d can be read; make the plan anew", p.Version, PlanVersion)
	}
	if p.Strategy == "" {
		bad("strategy: is empty")
	}
	if p.Shares != EvenShares && p.Shares != RaggedShares {
		bad("shares: want %q or %q, got %q", EvenShares, RaggedShares, p.Shares)
	}
	if p.GlobalBatch < 1 {
		bad("global_batch: want at least 1, got %d", p.GlobalBatch)
	}
	if len(p.Ranks) == 0 {
		bad("ranks: is empty")
	}
	batch := int64(0)
	for i, r := range p.Ranks {
		r.validate(i, bad)
		batch += int64(r.Batch)
	}
	if len(p.Ranks) > 0 && batch != int64(p.GlobalBatch) {
		bad("ranks: batches sum to %d, want global_batch %d", batch, p.GlobalBatch)
	}
	validateShares(p.Ranks, bad)
	checkTime(bad, "predicted.iteration_ms", p.Predicted.IterationMs)
	checkTime(bad, "predicted.samples_per_second", p.Predicted.SamplesPerSecond)
	for i, a := range p.Alternatives {
		checkTime(bad, fmt.Sprintf("alternatives[%d].iteration_ms", i), a.IterationMs)
		if a.Strategy == "" {
			bad("alternatives[%d].strategy: is empty", i)
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("plan: %w", errors.Join(faults...))
	}
	return nil
}

func (r RankPlan) validate(i int, bad func(string, ...any)) {
	at := func(name string) string { return fmt.Sprintf("ranks[%d].%s", i, name) }
	if r.Rank != i {
		bad("%s: want %d, got %d", at("rank"), i, r.Rank)
	}
	if r.Device == "" {
		bad("%s: is empty", at("device"))
	}
	if r.Batch < 0 {
		bad("%s: want at least 0, got %d", at("batch"), r.Batch)
	}
	sum := int64(0)
	for j, m := range r.MicroBatches {
		if m < 1 {
			bad("%s: want at least 1, got %d", at(fmt.Sprintf("micro_batches[%d]", j)), m)
		}
		sum += int64(m)
	}
	if sum != int64(r.Batch) {
		bad("%s: sum to %d, want batch %d", at("micro_batches"), sum, r.Batch)
	}
	if r.StatePPM < 0 || r.StatePPM > TotalPPM {
		bad("%s: want 0 to %d, got %d", at("state_ppm"), TotalPPM, r.StatePPM)
	}
	if !knownPolicy(r.Activations) {
		bad("%s: want %q, %q or %q, got %q", at("activations"), Keep, Recompute, Offload, r.Activations)
	}
	for _, class := range sortedKeys(r.KeptUnits) {
		if n := r.KeptUnits[class]; n < 0 {
			bad("%s: want at least 0, got %d", at("kept_units."+class), n)
		}
	}
	checkTime(bad, at("predicted.forward_ms"), r.Predicted.ForwardMs)
	checkTime(bad, at("predicted.backward_ms"), r.Predicted.BackwardMs)
	if m := r.Predicted; m.MemoryBytes < 0 || m.MemoryBytes > m.UsableMemoryBytes {
		bad("%s: want 0 to usable_memory_bytes %d, got %d", at("predicted.memory_bytes"), m.UsableMemoryBytes, m.MemoryBytes)
	}
}

func knownPolicy(p Policy) bool { return p == Keep || p == Recompute || p == Offload }

func checkTime(bad func(string, ...any), path string, v float64) {
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		bad("%s: want a finite number of at least 0, got %v", path, v)
	}
}
