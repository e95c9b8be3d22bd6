package main

import (
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/solver"
)

// outcomeRecord is a strategy's outcome as JSON.
type outcomeRecord struct {
	Strategy         string       `json:"strategy"`
	Runs             bool         `json:"runs"`
	IterationMs      float64      `json:"iteration_ms,omitempty"`
	SamplesPerSecond float64      `json:"samples_per_second,omitempty"`
	Utilisation      float64      `json:"utilisation,omitempty"`
	How              string       `json:"how"`
	Ranks            []rankRecord `json:"ranks,omitempty"`
}

type rankRecord struct {
	Rank          int            `json:"rank"`
	Device        string         `json:"device"`
	Batch         int            `json:"batch"`
	MicroBatches  []int          `json:"micro_batches"`
	Units         int            `json:"units,omitempty"`
	Team          int            `json:"team,omitempty"`
	Activations   solver.Policy  `json:"activations,omitempty"`
	KeptUnits     map[string]int `json:"kept_units,omitempty"`
	StatePPM      int            `json:"state_ppm,omitempty"`
	ClassStatePPM map[string]int `json:"class_state_ppm,omitempty"`
	ComputeMs     float64        `json:"compute_ms"`
	MemoryBytes   int64          `json:"memory_bytes"`
	UsableBytes   int64          `json:"usable_memory_bytes"`
}

func outcomeRecords(list []solver.Outcome) []outcomeRecord {
	var out []outcomeRecord
	for _, o := range list {
		r := outcomeRecord{Strategy: o.Strategy, Runs: o.Fits(), IterationMs: o.IterationMs, SamplesPerSecond: o.SamplesPerSecond,
			Utilisation: o.Utilisation(), How: o.How}
		for _, rank := range o.Ranks {
			if rank.MicroBatches == nil {
				rank.MicroBatches = []int{}
			}
			r.Ranks = append(r.Ranks, rankRecord(rank))
		}
		out = append(out, r)
	}
	return out
}

// curvePoint is a point of the curve of samples per second by batch as JSON.
type curvePoint struct {
	GlobalBatch      int     `json:"global_batch"`
	IterationMs      float64 `json:"iteration_ms"`
	SamplesPerSecond float64 `json:"samples_per_second"`
}

func curveRecords(curve []solver.BatchPoint) []curvePoint {
	var out []curvePoint
	for _, p := range curve {
		out = append(out, curvePoint(p))
	}
	return out
}

func curveText(curve []curvePoint) string {
	if len(curve) == 0 {
		return ""
	}
	points := make([]solver.BatchPoint, len(curve))
	for i, p := range curve {
		points[i] = solver.BatchPoint(p)
	}
	return show.Curve(points)
}
