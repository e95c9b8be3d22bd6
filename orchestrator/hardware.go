package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
)

// Hardware measures the devices themselves, without a model.
func Hardware(ctx context.Context, spec Spec, deps Deps) ([]show.Hardware, error) {
	spec.Script, spec.Args = "", nil
	s, err := open(ctx, spec, deps)
	if err != nil {
		return nil, err
	}
	defer s.close()
	list, err := s.hardware(ctx)
	if err != nil {
		_, err = s.conclude(ctx, err)
		return nil, err
	}
	return list, s.enter(Done, "measured", nil)
}

func (s *session) hardware(ctx context.Context) ([]show.Hardware, error) {
	if err := s.enter(Profiling, "", nil); err != nil {
		return nil, err
	}
	s.screen.say("measuring %s", show.Count(len(s.devices.Chosen), "device"))
	if err := rundir.WriteJSON(s.run.Path(rundir.PlanFile), bootstrap(s.devices.Chosen)); err != nil {
		return nil, err
	}
	a := s.newAttempt(launch.Hardware, "hardware-")
	end, err := a.do(ctx)
	if err != nil {
		return nil, err
	}
	if end.stopped != nil {
		return nil, end.stopped
	}
	if !end.outcome.Success() {
		return nil, machine("measure hardware: %s", a.failure(end).Headline())
	}
	var list []show.Hardware
	for rank, d := range s.devices.Chosen {
		h, err := readHardware(s.run.Path(rundir.MeasureDir, fmt.Sprintf("rank-%d.json", rank)))
		if err != nil {
			return nil, err
		}
		h.Rank, h.Device, h.UUID = rank, d.Name, d.UUID
		list = append(list, h)
	}
	return list, nil
}

func readHardware(path string) (show.Hardware, error) {
	data, err := profiler.ReadFile(path, profiler.MostInputBytes)
	if err != nil {
		return show.Hardware{}, fmt.Errorf("read measurement: %w", err)
	}
	var file struct {
		Hardware *show.HardwareNumbers `json:"hardware"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return show.Hardware{}, fmt.Errorf("read measurement %s: %w", path, err)
	}
	if file.Hardware == nil {
		return show.Hardware{}, fmt.Errorf("read measurement %s: there is nothing of the hardware in it", path)
	}
	return show.Hardware{HardwareNumbers: *file.Hardware}, nil
}
