package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/cephalorun/cephalorun/profiler"
)

// correctionVersion is the only version of the file that is read.
const correctionVersion = 1

// correctionPath lies beside the profile; its name is no fingerprint.
func (c Cache) correctionPath(fingerprint string) string {
	return filepath.Join(c.dir, fingerprint+".correction.json")
}

// Correction is what was kept for a profile; false if there is nothing, or nothing that
// makes sense.
func (c Cache) Correction(fingerprint string) (profiler.Correction, bool) {
	var found profiler.Correction
	data, err := profiler.ReadFile(c.correctionPath(fingerprint), profiler.MostInputBytes)
	if err != nil || json.Unmarshal(data, &found) != nil {
		return profiler.Correction{}, false
	}
	sound := found.Version == correctionVersion && found.TimeRatio > 0 && !math.IsInf(found.TimeRatio, 0)
	for _, bytes := range found.MemoryBytes {
		sound = sound && bytes >= 0
	}
	return found, sound
}

// StoreCorrection keeps what the next plan of this profile is corrected by.
func (c Cache) StoreCorrection(fingerprint string, correction profiler.Correction) error {
	if !fingerprintPattern.MatchString(fingerprint) {
		return fmt.Errorf("store correction: %q is no fingerprint", fingerprint)
	}
	correction.Version = correctionVersion
	data, err := json.MarshalIndent(correction, "", " ")
	if err != nil {
		return fmt.Errorf("encode correction: %w", err)
	}
	path := c.correctionPath(fingerprint)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("store correction: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("store correction: %w", err)
	}
	return nil
}

// DropCorrection forgets it: the profile was measured anew.
func (c Cache) DropCorrection(fingerprint string) error {
	if err := os.Remove(c.correctionPath(fingerprint)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop correction: %w", err)
	}
	return nil
}
