package nvml

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/cephalorun/cephalorun/profiler"
)

// Reader reads the GPUs of a library that stays open. It may be used by one goroutine.
type Reader struct {
	provider Provider
	gauges   []*gauge // nil until the library is open
}

var _ profiler.Reader = (*Reader)(nil)

// Reader reads the provider's GPUs.
func (p Provider) Reader() profiler.Reader { return &Reader{provider: p} }

// Readings implements profiler.Reader.
func (r *Reader) Readings(ctx context.Context) ([]profiler.Reading, error) {
	limit := cmp.Or(r.provider.Limit, DefaultLimit)
	if r.gauges == nil {
		count, _, err := r.provider.open(ctx, limit)
		if err != nil {
			return nil, err
		}
		for i := range count {
			r.gauges = append(r.gauges, &gauge{card: card{provider: r.provider}, last: profiler.UnknownReading(i)})
		}
	}
	var wait sync.WaitGroup
	for _, g := range r.gauges {
		wait.Go(func() { g.read(ctx, limit) })
	}
	wait.Wait()
	var all []profiler.Reading
	for _, g := range r.gauges {
		all = append(all, g.reading())
	}
	return all, nil
}

// Close closes the library, unless a call into it is still under way.
func (r *Reader) Close() {
	for _, g := range r.gauges {
		if g.underWay() {
			return
		}
	}
	if r.gauges != nil {
		within(context.Background(), cmp.Or(r.provider.Limit, DefaultLimit), func() { r.provider.NVML.Shutdown() })
	}
	r.gauges = nil
}

// gauge reads one GPU. While a question is unanswered no other one is put: goroutines that
// wait for a driver would pile up.
type gauge struct {
	card card // for its questions

	mu      sync.Mutex // guards what follows
	last    profiler.Reading
	asking  bool
	problem string
}

// read asks the GPU, within the limit.
func (g *gauge) read(ctx context.Context, limit time.Duration) {
	g.mu.Lock()
	if g.asking {
		g.mu.Unlock()
		return // its problem stands
	}
	g.asking = true
	index := g.last.Index
	g.mu.Unlock()
	if !within(ctx, limit, func() { g.ask(index) }) && ctx.Err() == nil {
		g.mu.Lock()
		if g.asking {
			g.problem = fmt.Sprintf("does not answer within %s", limit)
		}
		g.mu.Unlock()
	}
}

// ask may never come back.
func (g *gauge) ask(index int) {
	reading, ret := g.card.read(index)
	reading.At = time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asking = false
	if ret != api.SUCCESS {
		g.problem = clause("read it", ret)
		return
	}
	g.last, g.problem = reading, ""
}

func (g *gauge) underWay() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asking
}

func (g *gauge) reading() profiler.Reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.last
	r.Problem, r.Stale = g.problem, g.problem != "" || g.asking
	return r
}
