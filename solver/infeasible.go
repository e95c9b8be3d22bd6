package solver

import "fmt"

// lacking explains why one rank does not fit what it was given.
func (m *model) lacking(rank int, missing int64, r RankLoad, a RankAllocation) *InfeasibleError {
	d := m.problem.Devices[rank]
	host := d.HostMemoryBytes > 0 && r.HostBytes > d.HostMemoryBytes && -r.HeadroomBytes() < missing
	detail := fmt.Sprintf("%d samples with %s activations need %s of computing and %s of activations beside %s of state and %s reserved, and %s are usable",
		a.Batch, a.Activations, gib(r.PeakBytes), gib(r.KeptBytes), gib(r.StateBytes), gib(r.ReservedBytes), gib(r.UsableBytes))
	if host {
		detail = fmt.Sprintf("%d samples offload %s into host memory, and %s are allowed", a.Batch, gib(r.HostBytes), gib(d.HostMemoryBytes))
	}
	return &InfeasibleError{
		Rank: rank, Device: label(d), MissingBytes: missing, Detail: detail,
		Remedy: fmt.Sprintf("give device %d fewer samples, smaller microbatches or less state, or make %s more usable", rank, gib(missing)),
	}
}

func (m *model) infeasible() *InfeasibleError { return &InfeasibleError{Rank: -1} }
