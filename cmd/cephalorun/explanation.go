package main

import "github.com/cephalorun/cephalorun/solver"

// explanationRecord is why a plan is as it is, as JSON: all that the text says.
type explanationRecord struct {
	Bottleneck string       `json:"bottleneck"`
	ExposedMs  float64      `json:"exposed_ms"`
	Steps      []stepRecord `json:"steps"`
	Ranks      []whyRecord  `json:"ranks"`
	Unused     []string     `json:"unused"`
	NextBest   string       `json:"next_best,omitempty"`
	Help       string       `json:"help,omitempty"`
}

// stepRecord is one pass over all units of a class. Rank is the slowest, -1 if the link binds.
type stepRecord struct {
	Class   string  `json:"class"`
	Pass    string  `json:"pass"`
	TotalMs float64 `json:"total_ms"`
	UnitMs  float64 `json:"unit_ms"`
	LinkMs  float64 `json:"link_ms"`
	Rank    int     `json:"rank"`
}

type whyRecord struct {
	Rank      int     `json:"rank"`
	Limit     string  `json:"limit"`
	Why       string  `json:"why"`
	IdleShare float64 `json:"idle_share"`
	memoryRecord
}

// memoryRecord is where a rank's memory goes.
type memoryRecord struct {
	ReservedBytes int64 `json:"reserved_bytes"`
	ComputeBytes  int64 `json:"compute_bytes"`
	KeptBytes     int64 `json:"kept_bytes"`
	StateBytes    int64 `json:"state_bytes"`
	TransitBytes  int64 `json:"transit_bytes"`
	HostBytes     int64 `json:"host_bytes"`
}

func memoryOf(l solver.RankLoad) memoryRecord {
	return memoryRecord{ReservedBytes: l.ReservedBytes, ComputeBytes: l.PeakBytes, KeptBytes: l.KeptBytes,
		StateBytes: l.StateBytes, TransitBytes: l.TransitBytes, HostBytes: l.HostBytes}
}

func explanationOf(e solver.Explanation) explanationRecord {
	out := explanationRecord{Bottleneck: e.Bottleneck, ExposedMs: e.ExposedMs, Unused: append([]string{}, e.Unused...), NextBest: e.NextBest, Help: e.Help}
	for _, s := range e.Steps {
		pass := "forward"
		if s.Backward {
			pass = "backward"
		}
		out.Steps = append(out.Steps, stepRecord{s.Class, pass, s.TotalMs, s.UnitMs, s.LinkMs, s.Rank})
	}
	for _, r := range e.Ranks {
		out.Ranks = append(out.Ranks, whyRecord{r.Rank, string(r.Limit), r.Why, r.IdleShare, memoryOf(r.Load)})
	}
	return out
}
