package profiler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// WriteProfile checks a profile and writes it aside, then renames it into
// place, so that a reader sees the old file or the new one and nothing between.
func WriteProfile(path string, p Profile) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	data, err := p.Encode()
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	if err := writeFile(path, data); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}

// Encode is the file's content: indented, same bytes for the same profile.
func (p Profile) Encode() ([]byte, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", " "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

func writeFile(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// The methods below write the fields that a file had and this version does not
// know back to where they were.

// MarshalJSON implements json.Marshaler.
func (p Profile) MarshalJSON() ([]byte, error) {
	type plain Profile
	if p.Collectives == nil {
		p.Collectives = map[string]Collective{}
	}
	return withExtra(plain(p), p.Extra)
}

// UnmarshalJSON reads and checks, as ParseProfile does.
func (p *Profile) UnmarshalJSON(data []byte) error {
	read, err := ParseProfile("profile", data)
	if err == nil {
		*p = read
	}
	return err
}

// MarshalJSON implements json.Marshaler.
func (m Model) MarshalJSON() ([]byte, error) {
	type plain Model
	return withExtra(plain(m), m.Extra)
}

// MarshalJSON implements json.Marshaler.
func (u Unit) MarshalJSON() ([]byte, error) {
	type plain Unit
	return withExtra(plain(u), u.Extra)
}

// MarshalJSON implements json.Marshaler.
func (d ProfileDevice) MarshalJSON() ([]byte, error) {
	type plain ProfileDevice
	return withExtra(plain(d), d.Extra)
}

// MarshalJSON implements json.Marshaler.
func (c UnitCosts) MarshalJSON() ([]byte, error) {
	type plain UnitCosts
	return withExtra(plain(c), c.Extra)
}

// MarshalJSON implements json.Marshaler.
func (c Cost) MarshalJSON() ([]byte, error) {
	type plain Cost
	if c.Points == nil {
		c.Points = [][2]float64{}
	}
	return withExtra(plain(c), c.Extra)
}

// MarshalJSON implements json.Marshaler.
func (t Tail) MarshalJSON() ([]byte, error) {
	type plain Tail
	return withExtra(plain(t), t.Extra)
}

// MarshalJSON implements json.Marshaler.
func (c Collective) MarshalJSON() ([]byte, error) {
	type plain Collective
	return withExtra(plain(c), c.Extra)
}

// MarshalJSON implements json.Marshaler.
func (o Overhead) MarshalJSON() ([]byte, error) {
	type plain Overhead
	return withExtra(plain(o), o.Extra)
}

// MarshalJSON implements json.Marshaler.
func (s Script) MarshalJSON() ([]byte, error) {
	type plain Script
	return withExtra(plain(s), s.Extra)
}

// MarshalJSON implements json.Marshaler.
func (m Measured) MarshalJSON() ([]byte, error) {
	type plain Measured
	return withExtra(plain(m), m.Extra)
}
