package rpc

import (
	"context"
	"fmt"
	"slices"

	"github.com/cephalorun/cephalorun/profiler"
)

// Reader reads GPUs through a plugin that stays. One that was killed or does not answer is
// ended, and the next reading starts another. It may be used by one goroutine.
type Reader struct {
	client  Client
	running *process
	last    []profiler.Reading
}

var _ profiler.Reader = (*Reader)(nil)

// Reader reads the GPUs of the client's plugin.
func (c Client) Reader() *Reader { return &Reader{client: c} }

// Readings implements profiler.Reader.
func (r *Reader) Readings(ctx context.Context) ([]profiler.Reading, error) {
	numbers, err := r.ask(ctx)
	if err == nil {
		err = numbers.Failure.err(numbers.Message)
	}
	if err != nil {
		return r.stale(err), err
	}
	r.last = numbers.Readings
	return numbers.Readings, nil
}

func (r *Reader) ask(ctx context.Context) (Numbers, error) {
	if r.running == nil {
		p, err := r.client.start(ctx)
		if err != nil {
			return Numbers{}, err
		}
		r.running = &p
	}
	var numbers Numbers
	err := r.client.call(ctx, r.running.connection, reading, &numbers)
	if err != nil {
		r.running.kill() // it is no use waiting for it to go by itself
		r.Close()
	}
	return numbers, err
}

// stale are the last readings as they are now.
func (r *Reader) stale(err error) []profiler.Reading {
	old := slices.Clone(r.last)
	for i := range old {
		old[i].Stale = true
		if old[i].Problem == "" {
			old[i].Problem = fmt.Sprintf("cannot be read: %v", err)
		}
	}
	return old
}

// PID is the plugin's process; 0 without one.
func (r *Reader) PID() int {
	if r.running == nil {
		return 0
	}
	return r.running.pid
}

// Close ends the plugin.
func (r *Reader) Close() {
	if r.running != nil {
		r.running.end()
		r.running = nil
	}
}
