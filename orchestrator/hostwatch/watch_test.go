package hostwatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

const gib = int64(1) << 30

// still is a machine on which nothing happens.
func still() Sources {
	return Sources{
		Memory: func(context.Context) (Memory, error) {
			return Memory{TotalBytes: 8 * gib, FreeBytes: 4 * gib, Source: "cgroup"}, nil
		},
		Disk:    func(context.Context, string) (int64, int64, error) { return 100 * gib, 50 * gib, nil },
		Traffic: func(context.Context) (int64, int64, error) { return 0, 0, nil },
	}
}

// watched collects what a watch tells in so long.
func watched(t *testing.T, w *Watch, during time.Duration) (states []State, told []string) {
	t.Helper()
	w.Now = time.Now
	w.Tell = func(s State, texts []string) { states, told = append(states, s), append(told, texts...) }
	w.Start(t.Context())
	time.Sleep(during) // of the bubble's clock
	w.Close()
	return states, told
}

// gpus answers with what it is told to.
type gpus func(ctx context.Context) ([]profiler.Reading, error)

func (g gpus) Readings(ctx context.Context) ([]profiler.Reading, error) { return g(ctx) }
func (g gpus) Close()                                                   {}

func TestTheMachineIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := still()
		var sent int64
		sources.Traffic = func(context.Context) (int64, int64, error) { sent += 10_000; return sent, 2 * sent, nil }
		w := &Watch{Sources: sources}
		w.AlsoDisk("/run")
		w.AlsoDisk("/run")
		states, told := watched(t, w, 25*time.Second)
		if len(states) != 3 || len(told) != 0 {
			t.Fatalf("%d states, told %q", len(states), told)
		}
		s := states[2]
		if *s.Memory != (Memory{TotalBytes: 8 * gib, FreeBytes: 4 * gib, Source: "cgroup"}) || *s.Network != (Network{1000, 2000}) || len(s.Disks) != 1 || s.Disks[0].FreeBytes != 50*gib {
			t.Errorf("got %+v", s)
		}
		want := []string{"host memory: 4.0 GiB of 8.0 GiB left (cgroup)", "disk of /run: 50.0 GiB of 100.0 GiB left", "network: 1000 B/s sent, 2 KiB/s received"}
		if got := s.Lines(); !slices.Equal(got, want) {
			t.Errorf("lines %q", got)
		}
	})
}

// A disk whose server is gone holds up nothing, is asked once, and its numbers are stale.
func TestADiskThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources, never, asked := still(), make(chan struct{}), 0
		defer close(never)
		sources.Disk = func(_ context.Context, path string) (int64, int64, error) {
			if path == "/gone" {
				if asked++; asked > 1 {
					<-never
				}
			}
			return 100 * gib, 50 * gib, nil
		}
		w := &Watch{Sources: sources}
		w.AlsoDisk("/gone")
		w.AlsoDisk("/run")
		states, told := watched(t, w, 65*time.Second)
		last := states[len(states)-1]
		if len(states) < 6 || asked != 2 || !last.Disks[0].Stale || last.Disks[0].FreeBytes != 50*gib || last.Disks[1].Stale {
			t.Errorf("%d states, asked %d times, %+v", len(states), asked, last.Disks)
		}
		if len(told) != 1 || !strings.Contains(told[0], "disk of /gone: does not answer; 50.0 GiB of 100.0 GiB were left at ") {
			t.Errorf("told %q", told)
		}
	})
}

// User case 47: readings that never come back do not hold up the watch's end.
func TestUserCase47ADriverThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		w := &Watch{Sources: still(), GPUs: gpus(func(context.Context) ([]profiler.Reading, error) { <-never; return nil, nil })}
		began := time.Now()
		watched(t, w, time.Second)
		if took := time.Since(began); took != time.Second+endLimit {
			t.Errorf("took %s", took)
		}
	})
}

func TestWhatIsTold(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 4, 31, 0, time.UTC)
	memory := func(free, kills int64) *Memory {
		return &Memory{TotalBytes: 8 * gib, FreeBytes: free, Source: "host", OOMKills: kills}
	}
	gpu := func(change func(*profiler.Reading)) []profiler.Reading {
		r := profiler.UnknownReading(2)
		r.At = at
		change(&r)
		return []profiler.Reading{r}
	}
	hot := func(r *profiler.Reading) {
		r.Throttled, r.TemperatureC, r.ClockMHz = []string{"power", "heat"}, 94, 1200
	}
	cases := map[string]struct {
		states []State
		want   []string
	}{
		"all well":                   {[]State{{Memory: memory(4*gib, 3)}, {Memory: memory(4*gib, 3)}}, nil},
		"user case 32: the kernel":   {[]State{{Memory: memory(4*gib, 3)}, {Memory: memory(4*gib, 5)}, {Memory: memory(4*gib, 5)}}, []string{"the kernel has ended 2 processes"}},
		"memory, once":               {[]State{{Memory: memory(gib/8, 0)}, {Memory: memory(gib/8, 0)}}, []string{"host memory is nearly used up: 128 MiB of 8.0 GiB"}},
		"a disk that gets full":      {[]State{{Disks: []Disk{{Path: "/c", TotalBytes: 100 * gib, FreeBytes: gib / 2}}}}, []string{"the disk of /c is nearly full: 512 MiB of 100.0 GiB left"}},
		"a folder that is not there": {[]State{{Disks: []Disk{{Path: "/c", Problem: "no such file"}}}}, nil},
		"user case 71: heat, once":   {[]State{{GPUs: gpu(hot)}, {GPUs: gpu(hot)}}, []string{"GPU 2 is held back by heat: 94 °C, 1200 of - MHz"}},
		"power is no news":           {[]State{{GPUs: gpu(func(r *profiler.Reading) { r.Throttled = []string{"power"} })}}, nil},
		"errors of its memory":       {[]State{{GPUs: gpu(func(r *profiler.Reading) { r.ECCErrors = 1 })}, {GPUs: gpu(func(r *profiler.Reading) { r.ECCErrors = 3 })}}, []string{"GPU 2 has had 2 memory errors"}},
		"user case 47: no answer":    {[]State{{GPUs: gpu(func(r *profiler.Reading) { r.Stale, r.Problem = true, "does not answer within 5s" })}}, []string{"GPU 2 does not answer within 5s; its numbers are stale since " + at.Local().Format(time.TimeOnly)}},
		"user case 37: no plugin":    {[]State{{Problem: "the plugin ended", GPUs: gpu(func(r *profiler.Reading) { r.Stale = true })}}, []string{"the GPUs cannot be read, which is tried again; the training goes on: the plugin ended"}},
	}
	for name, c := range cases {
		w := warner{seen: map[string]time.Time{}, ecc: map[string]int{}}
		var told []string
		for i, s := range c.states {
			s.Updated = at.Add(time.Duration(i) * DefaultEvery)
			told = append(told, w.tell(s)...)
		}
		if !slices.EqualFunc(told, c.want, strings.HasPrefix) {
			t.Errorf("%s: told %q, want %q", name, told, c.want)
		}
	}
	w := warner{seen: map[string]time.Time{}, ecc: map[string]int{}}
	low := State{Updated: at, Memory: memory(1, 0)}
	w.tell(low)
	low.Updated = at.Add(quiet + time.Second)
	if len(w.tell(low)) != 1 {
		t.Error("what comes back after a long time is told again")
	}
}

// User case 49: what a GPU does not tell is "-", and never 0.
func TestUserCase49LinesOfAGPU(t *testing.T) {
	r := profiler.UnknownReading(1)
	r.At, r.Name, r.TemperatureC, r.Throttled = time.Now(), "card", 60, []string{"power"}
	if got, want := gpuLine(r), "GPU 1 card: 60 °C, - W, - of - MHz (held back by power), - % busy, - of -, - memory errors"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	r.At, r.Problem = time.Time{}, "does not answer within 5s"
	if got := gpuLine(r); got != "GPU 1 card: does not answer within 5s" {
		t.Errorf("got %q", got)
	}
}

func TestThisMachine(t *testing.T) {
	s := Host()
	if m, err := s.Memory(t.Context()); err != nil || m.TotalBytes <= 0 || m.FreeBytes <= 0 {
		t.Errorf("memory %+v, %v", m, err)
	}
	if total, free, err := s.Disk(t.Context(), t.TempDir()); err != nil || total <= 0 || free > total {
		t.Errorf("disk %d, %d, %v", total, free, err)
	}
	if _, _, err := s.Disk(t.Context(), "/no/such/folder"); err == nil {
		t.Error("a folder that is not there has no disk")
	}
	if _, _, err := s.Traffic(t.Context()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("network: %v", err)
	}
}
