package solver

import (
	"math"
	"syscall"
	"testing"
	"time"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return time.Duration(u.Utime.Nano())
}
func TestHack(t *testing.T) {
	probs := map[string]Problem{}
	for _, c := range loadCases(t) {
		probs[c.Profile] = loadProblem(t, c)
	}
	for _, f := range []fleet{
		{devices: 16, kinds: 3, batch: 256, classes: 1, memory: 2},
		{devices: 64, kinds: 3, batch: 1024, classes: 1, memory: 8},
		{devices: 64, kinds: 64, batch: 1024, classes: 1, memory: 2},
		{devices: 64, kinds: 64, batch: 1024, classes: 2, memory: 2},
		{devices: 64, kinds: 64, batch: 1024, classes: 2, memory: 8},
		{devices: 64, kinds: 64, batch: 1024, classes: 3, memory: 8},
	} {
		f.seed = 1
		f.policies = []Policy{Keep, Recompute}
		probs[f.String()] = f.problem()
	}
	for _, n := range sortedKeys(probs) {
		p := probs[n]
		m, _ := newModel(p)
		cut := math.Inf(1)
		for _, sh := range []Shares{EvenShares, RaggedShares} {
			s := newSearch(m, sh)
			t0 := cpu()
			ok := s.run(cut)
			tr := cpu() - t0
			n1 := s.nodes
			opts := 0
			for _, l := range s.pool {
				opts += len(l)
			}
			t0 = cpu()
			if ok {
				cut = s.bestMs * (1 - tolerance)
				s.settle()
			}
			ts := cpu() - t0
			t.Log(n, sh, ok, "run", tr, "nodes", n1, "settle", ts, "nodes", s.nodes-n1, "opts", opts, s.bestMs)
		}
	}
}
