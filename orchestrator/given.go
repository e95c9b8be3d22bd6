package orchestrator

import (
	"errors"
	"os"
)

// checkScript refuses what Python could not run on every rank.
func checkScript(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return usage("there is no script %s", path)
	case err != nil:
		return usage("script %s: %w", path, err)
	case info.IsDir():
		return usage("%s is a folder; name the script", path)
	case !info.Mode().IsRegular():
		return usage("script %s is no file that every rank could read; write it to one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return usage("script %s: %w", path, err)
	}
	return f.Close()
}

// readGiven reads the plan and the profile that the user names and compares them with the script,
// the devices and each other, before there is a folder of the run: what is refused leaves nothing.
func (s *session) readGiven() error {
	if s.spec.Script == "" {
		return nil
	}
	if err := s.spec.batchForEach(len(s.devices.Chosen)); err != nil {
		return err
	}
	if _, _, err := s.spec.batchByHand(); err != nil {
		return err
	}
	if s.spec.PlanFile == "" && s.spec.ProfileFile == "" {
		return nil
	}
	fingerprint, err := s.fingerprint()
	if err != nil {
		return err
	}
	if s.spec.PlanFile != "" {
		if err := s.givenPlan(); err != nil {
			return err
		}
		if err := s.planOfThisModel(fingerprint); err != nil {
			return err
		}
	}
	if s.spec.ProfileFile != "" {
		return s.readProfile(fingerprint)
	}
	return nil
}
