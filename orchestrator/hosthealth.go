package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/hostwatch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/profiler"
)

// keepHealthEvery is how often what the machine says is kept as an event, if nothing is
// new in it.
const keepHealthEvery = time.Minute

// watchHost begins to look at what the run runs on.
func (s *session) watchHost(ctx context.Context) {
	w := s.watchOf(s.all, s.tellOfHost())
	w.AlsoDisk(s.run.Dir)
	for _, dir := range s.restarts.folders() {
		w.AlsoDisk(dir)
	}
	s.host = w
	w.Start(ctx)
}

// watchOf looks at the host and at the GPUs of devices.
func (s *session) watchOf(devices []profiler.Device, tell func(hostwatch.State, []string)) *hostwatch.Watch {
	w := &hostwatch.Watch{Sources: hostwatch.Host(), Every: s.deps.ReadEvery, Now: s.deps.Now, Tell: tell}
	for _, d := range devices {
		if d.Kind == profiler.KindCUDA && !slices.Contains(w.Only, d.GPUUUID) {
			w.Only = append(w.Only, d.GPUUUID)
		}
	}
	if s.deps.ReadAllGPUs {
		w.Only = nil
	}
	if len(w.Only) > 0 || s.deps.ReadAllGPUs {
		w.GPUs = s.deps.Readings
	}
	return w
}

// tellOfHost keeps what the machine says. It is called by the watch's goroutine, and uses
// of the session only what may be used by several.
func (s *session) tellOfHost() func(hostwatch.State, []string) {
	run, journal, screen, unkept := s.run, s.journal, s.screen, &s.unkept
	var kept time.Time
	return func(state hostwatch.State, told []string) {
		unkept.say(screen, rundir.WriteJSON(run.Path(rundir.MachineFile), state))
		e := events.Event{Time: state.Updated, Kind: events.Hardware, Rank: events.NoRank, Machine: state}
		for _, text := range told {
			screen.say("note: %s", text)
			e.Message = text
			unkept.say(screen, journal.Write(e))
			kept = state.Updated
		}
		if state.Updated.Sub(kept) >= keepHealthEvery {
			kept = state.Updated
			unkept.say(screen, journal.Write(e))
		}
	}
}
