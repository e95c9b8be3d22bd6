package orchestrator

import (
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/cache"
)

const (
	// correctingSteps are the fewest steps that say something about the next run.
	correctingSteps = 20
	// A step that differs by more than these factors was disturbed by something that no
	// profile can know.
	leastRatio, mostRatio = 0.25, 4
)

// correct applies what the last run of this profile measured.
func (s *session) correct(kept cache.Cache) {
	found, ok := kept.Correction(s.profile.Fingerprint)
	if !ok {
		return
	}
	s.correction = found
	s.profile = s.profile.Corrected(found)
	s.screen.say("profile: times are scaled by %.2f, which is what the last run measured", found.TimeRatio)
}

// learn keeps what this run measured for the next plan of its profile. Given profiles and
// runs whose devices changed say nothing about it.
func (s *session) learn(report show.Report) {
	steps := report.Steps - report.SkippedSteps
	if s.spec.ProfileFile != "" || s.restarts.Total > 0 || steps < correctingSteps || report.PredictedStepMs <= 0 {
		return
	}
	ratio := report.MeasuredStepMs / report.PredictedStepMs
	if s.correction.TimeRatio > 0 {
		ratio *= s.correction.TimeRatio
	}
	if ratio < leastRatio || ratio > mostRatio {
		return
	}
	next := profiler.Correction{TimeRatio: ratio, Steps: steps, MemoryBytes: map[string]int64{}}
	for i, k := range report.Ranks {
		uuid := s.devices.Chosen[i].UUID
		next.MemoryBytes[uuid] = s.correction.MemoryBytes[uuid] + max(0, k.MeasuredMemoryBytes-k.PredictedMemoryBytes)
	}
	if err := cache.New(s.spec.StateDir).StoreCorrection(s.profile.Fingerprint, next); err != nil {
		s.screen.say("note: what this run measured is not kept for the next plan: %v", err)
	}
}
