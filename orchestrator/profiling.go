package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/launch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/cache"
	"github.com/cephalorun/cephalorun/profiler/measure"
	"github.com/cephalorun/cephalorun/pyshim"
)

// obtainProfile is the profile of this script on these devices: the file that was
// given, the one kept from before, or a new measurement.
func (s *session) obtainProfile(ctx context.Context) error {
	if s.spec.ProfileFile == "" { // else it was read at the start
		fingerprint, err := s.fingerprint()
		if err != nil {
			return err
		}
		if err := s.cachedOrMeasured(ctx, fingerprint); err != nil {
			return err
		}
	}
	s.profile = cache.Refresh(s.profile, s.devices.Chosen)
	s.sayWhole()
	s.sayHeldBack()
	if err := s.checkDType(); err != nil {
		return err
	}
	return profiler.WriteProfile(s.run.Path(rundir.ProfileFile), s.profile)
}

// sayWhole names the units that cannot run microbatch by microbatch, and why.
func (s *session) sayWhole() {
	for _, u := range s.profile.Model.Units {
		if u.WholeBatchReason != "" {
			s.screen.say("note: %s runs on the whole batch of its device at once: %s", u.Class, u.WholeBatchReason)
		}
	}
}

func (s *session) fingerprint() (string, error) {
	sources, err := cache.ScriptSources(s.spec.Script)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUsage, err)
	}
	hash, err := pyshim.Hash()
	if err != nil {
		return "", err
	}
	return cache.Fingerprint(cache.Inputs{
		Sources: sources, Args: s.spec.Args, Python: s.python.Version, Torch: s.python.Torch,
		Devices: s.devices.Chosen, Package: hash, Environment: cache.CostEnvironment(s.deps.Environ),
	}), nil
}

// readProfile takes a profile that the user names; it must belong to what is run.
func (s *session) readProfile(fingerprint string) error {
	p, err := ReadProfileFile(s.spec.ProfileFile)
	if err != nil {
		return err
	}
	if err := sameDevices(s.spec.ProfileFile, p, s.devices.Chosen); err != nil {
		return otherSetup{err}
	}
	if p.Fingerprint != "" && p.Fingerprint != fingerprint {
		return otherSetup{usage("profile %s is of another model or set-up (%.15s… and not %.15s…): measure again by leaving --profile out",
			s.spec.ProfileFile, p.Fingerprint, fingerprint)}
	}
	for _, doubt := range p.Doubts() {
		s.screen.say("note: %s: %s", s.spec.ProfileFile, doubt)
	}
	s.profile = p
	return nil
}

// otherSetup says that a profile is sound, and of something else than what is run.
type otherSetup struct{ error }

func (e otherSetup) Unwrap() error { return e.error }

// ReadProfileFile reads a profile; whatever is wrong with it is the user's to mend.
func ReadProfileFile(path string) (profiler.Profile, error) {
	p, err := profiler.ReadGivenProfile(path)
	if err != nil {
		return profiler.Profile{}, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return p, nil
}

func sameDevices(source string, p profiler.Profile, devices []profiler.Device) error {
	if len(p.Devices) != len(devices) {
		return usage("profile %s is of %s, and %d are used here: measure again by leaving --profile out", source, show.Count(len(p.Devices), "device"), len(devices))
	}
	for i, d := range p.Devices {
		if d.UUID != "" && d.UUID != devices[i].UUID {
			return usage("profile %s has %s (%s) at rank %d, and here it is %s (%s): measure again by leaving --profile out",
				source, d.Name, d.UUID, i, devices[i].Name, devices[i].UUID)
		}
	}
	return nil
}

func (s *session) cachedOrMeasured(ctx context.Context, fingerprint string) error {
	kept := cache.New(s.spec.StateDir)
	if !s.spec.Remeasure {
		p, err := kept.Lookup(fingerprint)
		if err == nil {
			s.profile = p
			s.screen.say("profile: measured before (%s)", kept.Path(fingerprint))
			s.correct(kept)
			return nil
		}
		var corrupt *cache.CorruptError
		if errors.As(err, &corrupt) {
			s.screen.say("profile: %v; measuring again", err)
		} else if !errors.Is(err, cache.ErrNotFound) {
			return err
		}
	}
	if err := s.measure(ctx, fingerprint); err != nil {
		return err
	}
	if err := kept.DropCorrection(fingerprint); err != nil {
		return err
	}
	if _, err := kept.Store(s.profile); err != nil {
		s.screen.say("profile: not kept for the next run: %v", err)
	}
	return s.stillThere(ctx)
}

// measure runs the script up to its first training forward and measures there.
func (s *session) measure(ctx context.Context, fingerprint string) error {
	if s.state != Profiling {
		if err := s.enter(Profiling, "", nil); err != nil {
			return err
		}
	}
	s.screen.say("profile: measuring the model on %s", show.Count(len(s.devices.Chosen), "device"))
	plan := bootstrap(s.devices.Chosen)
	if err := rundir.WriteJSON(s.run.Path(rundir.PlanFile), plan); err != nil {
		return err
	}
	a := s.newAttempt(launch.Profile, rundir.ProfileLogs)
	s.notLoaded = ""
	a.hear = func(e events.Event) {
		s.keep(e)
		if e.Kind == events.Checkpoint && e.Phase == checkpointNotLoaded {
			s.notLoaded = e.Path
		}
	}
	before := s.pressure()
	seen, unwatch := s.watchClocks(ctx)
	end, err := a.do(ctx)
	unwatch()
	if err != nil {
		return err
	}
	if end.stopped != nil {
		return end.stopped
	}
	if !end.outcome.Success() {
		if err := s.afterMeasuring(ctx, a.failure(end), s.pressure().OOMKills-before.OOMKills); err != nil {
			return err
		}
		return s.measure(ctx, fingerprint)
	}
	if err := s.trainedNothing(a, end, true); err != nil {
		return err
	}
	var files []string
	for rank := range s.devices.Chosen {
		files = append(files, s.run.Path(rundir.MeasureDir, fmt.Sprintf("rank-%d.json", rank)))
	}
	measurements, err := measure.ReadAll(files)
	if err != nil {
		return fmt.Errorf("read measurements: %w", err)
	}
	result, err := measure.Merge(measure.Run{Fingerprint: fingerprint, Devices: s.devices.Chosen, Time: s.deps.Now()}, measurements)
	if err != nil {
		return err
	}
	s.profile = result.Profile
	seen.into(&s.profile, s.devices.Chosen)
	for _, note := range result.Notes {
		s.screen.say("note: %s", note)
		s.note(events.Event{Kind: events.Profile, Message: note})
	}
	return nil
}

// stillThere asks for the devices again: minutes may have passed.
func (s *session) stillThere(ctx context.Context) error {
	now, err := s.find(ctx)
	if err != nil {
		return err
	}
	for _, d := range s.devices.Chosen {
		if !slices.ContainsFunc(now.Chosen, func(n profiler.Device) bool { return n.UUID == d.UUID }) {
			return machine("%s (%s) was there when the model was measured and is gone now; start again to plan without it", d.Label(), d.UUID)
		}
	}
	return nil
}

// checkDType refuses a compute type that some device lacks, before it fails deep
// inside or runs on in emulation.
func (s *session) checkDType() error {
	wanted := profiler.DType(s.profile.Model.DType)
	if wanted == "" {
		return nil
	}
	choice := profiler.CommonDType(s.devices.Chosen, wanted, s.spec.AllowEmulatedBF16)
	for _, reason := range choice.Reasons {
		s.screen.say("note: %s", reason)
	}
	if choice.DType != wanted {
		return machine("the script computes in %s, which not every device has: %s. Let the script compute in %s, leave devices out with --devices, or use --allow-emulated-bf16",
			wanted, choice.Reasons[0], choice.DType)
	}
	return nil
}
