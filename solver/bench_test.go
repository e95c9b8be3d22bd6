package solver

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkSolve holds the planner to its targets on two cores: 20 ms, 50 ms,
// 0.5 s, 2 s and 1 s in the order of the sizes.
func BenchmarkSolve(b *testing.B) {
	sizes := []fleet{
		{devices: 16, kinds: 3, batch: 256},
		{devices: 64, kinds: 3, batch: 1024},
		{devices: 512, kinds: 3, batch: 4096},
		{devices: 1024, kinds: 5, batch: 16384},
		{devices: 64, kinds: 64, batch: 1024},
	}
	for _, f := range sizes {
		for _, classes := range []int{1, 2, 3} {
			for _, memory := range []float64{2, 8} {
				f.classes, f.memory, f.seed = classes, memory, 1
				f.policies = []Policy{Keep, Recompute}
				p := f.problem()
				b.Run(f.String(), func(b *testing.B) {
					start := cpuTime(b)
					for b.Loop() {
						if _, err := Solve(p); err != nil {
							b.Fatal(err)
						}
					}
					spent := cpuTime(b) - start
					b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "cpu-ms/op")
				})
			}
		}
	}
}

// BenchmarkSolveWithin cuts the search off on the slowest fleet that we know.
func BenchmarkSolveWithin(b *testing.B) {
	for _, boxes := range []int{100, 1000} {
		f := fleet{devices: 64, kinds: 64, batch: 1024, classes: 3, memory: 2, policies: []Policy{Keep, Recompute}, seed: 1}
		p := f.problem()
		b.Run(fmt.Sprintf("%s-boxes-%d", f, boxes), func(b *testing.B) {
			start := cpuTime(b)
			for b.Loop() {
				plan, low, err := SolveWithin(p, boxes)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(plan.Predicted.IterationMs, "plan-ms")
				b.ReportMetric(low, "bound-ms")
			}
			b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkCompare asks every strategy about chains of 32 units.
func BenchmarkCompare(b *testing.B) {
	for _, devices := range []int{8, 64, 512} {
		f := fleet{devices: devices, kinds: 3, batch: 4 * devices, classes: 2, memory: 4, policies: []Policy{Keep, Recompute}, seed: 1}
		p := f.problem()
		p.Links = &Links{Between: 5e6}
		for i := range devices {
			p.Links.NodeOf = append(p.Links.NodeOf, i/8)
		}
		for range (devices + 7) / 8 {
			p.Links.Inside = append(p.Links.Inside, 5e7)
		}
		b.Run(fmt.Sprintf("%d-devices", devices), func(b *testing.B) {
			for b.Loop() {
				if _, err := Compare(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkExplain explains the plan of the slowest fleet that we know.
func BenchmarkExplain(b *testing.B) {
	f := fleet{devices: 64, kinds: 64, batch: 1024, classes: 3, memory: 2, policies: []Policy{Keep, Recompute}, seed: 1}
	p := f.problem()
	plan, _, err := SolveWithin(p, 400)
	if err != nil {
		b.Fatal(err)
	}
	start := cpuTime(b)
	for b.Loop() {
		if _, err := Explain(p, plan); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// cpuTime is what the process has computed; on a busy machine it says more
// than the clock.
func cpuTime(b testing.TB) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
