package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

// ErrNotFound says that there is no profile of that fingerprint.
var ErrNotFound = errors.New("no cached profile")

// CorruptError is a cached profile that cannot be used: measure again, and
// Store replaces it.
type CorruptError struct {
	Path string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("cached profile %s cannot be used, measuring again: %v", e.Path, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Cache is the profiles folder of a state folder.
type Cache struct{ dir string }

// New is the cache in a state folder (.cephalo); nothing is created yet.
func New(stateDir string) Cache { return Cache{dir: filepath.Join(stateDir, "profiles")} }

var fingerprintPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Path is where the profile of a fingerprint lies.
func (c Cache) Path(fingerprint string) string {
	return filepath.Join(c.dir, fingerprint+".json")
}

// Lookup is the profile of a fingerprint; ErrNotFound or a *CorruptError
// otherwise, both meaning: measure.
func (c Cache) Lookup(fingerprint string) (profiler.Profile, error) {
	if !fingerprintPattern.MatchString(fingerprint) {
		return profiler.Profile{}, fmt.Errorf("%q is no fingerprint", fingerprint)
	}
	path := c.Path(fingerprint)
	p, err := profiler.ReadProfile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return profiler.Profile{}, fmt.Errorf("%w of %s", ErrNotFound, fingerprint)
	case err != nil:
		return profiler.Profile{}, &CorruptError{Path: path, Err: err}
	case p.Fingerprint != fingerprint:
		return profiler.Profile{}, &CorruptError{Path: path, Err: fmt.Errorf("it is the profile of %q", p.Fingerprint)}
	}
	return p, nil
}

// Store keeps a profile under its fingerprint and says where.
func (c Cache) Store(p profiler.Profile) (string, error) {
	if !fingerprintPattern.MatchString(p.Fingerprint) {
		return "", fmt.Errorf("store profile: %q is no fingerprint", p.Fingerprint)
	}
	path := c.Path(p.Fingerprint)
	if err := profiler.WriteProfile(path, p); err != nil {
		return "", err
	}
	return path, nil
}

// Entry is one cached profile in a listing.
type Entry struct {
	Path        string
	Fingerprint string
	Modified    time.Time
	// Profile is filled unless Err says why the file cannot be used.
	Profile profiler.Profile
	Err     error
}

// List is all cached profiles, newest first. An empty or missing folder is an
// empty list.
func (c Cache) List() ([]Entry, error) {
	files, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list cached profiles: %w", err)
	}
	var out []Entry
	for _, f := range files {
		fingerprint, isProfile := strings.CutSuffix(f.Name(), ".json")
		if !isProfile || !fingerprintPattern.MatchString(fingerprint) {
			continue
		}
		e := Entry{Path: c.Path(fingerprint), Fingerprint: fingerprint}
		if info, err := f.Info(); err == nil {
			e.Modified = info.ModTime()
		}
		e.Profile, e.Err = c.Lookup(fingerprint)
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return b.Modified.Compare(a.Modified) })
	return out, nil
}
