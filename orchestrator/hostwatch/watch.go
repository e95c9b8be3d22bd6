package hostwatch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

// Defaults of a Watch.
const (
	// DefaultEvery is how often the machine is looked at.
	DefaultEvery = 10 * time.Second
	// askLimit is how long one thing may take to answer; readLimit all GPUs together, which
	// may include the start of the plugin.
	askLimit  = 5 * time.Second
	readLimit = 30 * time.Second
	// endLimit is how long the end of a watch may hold up its run.
	endLimit = 5 * time.Second
)

// Watch looks at the machine every so often.
type Watch struct {
	// Configuration, never modified.
	Sources Sources
	// GPUs reads GPUs; nil reads none. Only reads those with these UUIDs, or all if nil.
	GPUs  profiler.Reader
	Only  []string
	Every time.Duration // 0 is DefaultEvery
	Now   func() time.Time
	// Tell gets every state, and what is new in it for a person. It is called by one goroutine.
	Tell func(State, []string)

	// State. Disks may be added meanwhile, and are guarded.
	mu      sync.Mutex
	disks   []*askedDisk
	memory  asked[Memory]
	traffic asked[traffic]
	before  traffic
	warner  warner
	cancel  context.CancelFunc
	done    chan struct{}
}

type askedDisk struct {
	path string
	asked[Disk]
}

type traffic struct {
	at             time.Time
	sent, received int64
}

// Start begins to watch, until Close.
func (w *Watch) Start(ctx context.Context) {
	w.warner = warner{seen: map[string]time.Time{}, ecc: map[string]int{}}
	ctx, w.cancel = context.WithCancel(ctx)
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		tick := time.NewTicker(cmp.Or(w.Every, DefaultEvery))
		defer tick.Stop()
		for ctx.Err() == nil {
			if s := w.look(ctx); ctx.Err() == nil {
				w.Tell(s, w.warner.tell(s))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		if w.GPUs != nil {
			w.GPUs.Close()
		}
	}()
}

// Close ends it. What hangs is left behind.
func (w *Watch) Close() {
	w.cancel()
	timer := time.NewTimer(endLimit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	}
}

// AlsoDisk watches the disk of a folder too.
func (w *Watch) AlsoDisk(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.disks, func(d *askedDisk) bool { return d.path == path }) {
		w.disks = append(w.disks, &askedDisk{path: path})
	}
}

// look asks everything at once.
func (w *Watch) look(ctx context.Context) State {
	var s State
	var wait sync.WaitGroup
	wait.Go(func() {
		m, _, fresh := w.memory.ask(ctx, askLimit, w.Now, func(ctx context.Context) (Memory, bool) {
			m, err := w.Sources.Memory(ctx)
			return m, err == nil
		})
		if fresh {
			s.Memory = &m
		}
	})
	wait.Go(func() { s.Network = w.lookAtNetwork(ctx) })
	w.mu.Lock()
	disks := slices.Clone(w.disks)
	w.mu.Unlock()
	s.Disks = make([]Disk, len(disks))
	for i, d := range disks {
		wait.Go(func() { s.Disks[i] = w.lookAtDisk(ctx, d) })
	}
	if w.GPUs != nil {
		wait.Go(func() { s.GPUs, s.Problem = w.lookAtGPUs(ctx) })
	}
	wait.Wait()
	s.Updated = w.Now()
	return s
}

func (w *Watch) lookAtDisk(ctx context.Context, d *askedDisk) Disk {
	disk, at, fresh := d.ask(ctx, askLimit, w.Now, func(ctx context.Context) (Disk, bool) {
		total, free, err := w.Sources.Disk(ctx, d.path)
		if err != nil {
			return Disk{Problem: err.Error()}, true
		}
		return Disk{TotalBytes: total, FreeBytes: free}, true
	})
	disk.Path, disk.At, disk.Stale = d.path, at, !fresh
	return disk
}

// lookAtNetwork is nil at the first look, which has nothing to be compared with.
func (w *Watch) lookAtNetwork(ctx context.Context) *Network {
	t, _, fresh := w.traffic.ask(ctx, askLimit, w.Now, func(ctx context.Context) (traffic, bool) {
		sent, received, err := w.Sources.Traffic(ctx)
		return traffic{w.Now(), sent, received}, err == nil
	})
	if !fresh {
		return nil
	}
	before := w.before
	w.before = t
	seconds := t.at.Sub(before.at).Seconds()
	if before.at.IsZero() || seconds <= 0 || t.sent < before.sent || t.received < before.received {
		return nil
	}
	return &Network{SentBytesPerSecond: int64(float64(t.sent-before.sent) / seconds), ReceivedBytesPerSecond: int64(float64(t.received-before.received) / seconds)}
}

func (w *Watch) lookAtGPUs(ctx context.Context) ([]profiler.Reading, string) {
	ctx, end := context.WithTimeout(ctx, readLimit)
	defer end()
	readings, err := w.GPUs.Readings(ctx)
	if w.Only != nil {
		readings = slices.DeleteFunc(readings, func(r profiler.Reading) bool { return r.UUID != "" && !slices.Contains(w.Only, r.UUID) })
	}
	if err != nil {
		return readings, err.Error()
	}
	return readings, ""
}
