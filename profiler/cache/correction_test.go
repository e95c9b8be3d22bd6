package cache

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

func TestCorrections(t *testing.T) {
	c := New(filepath.Join(t.TempDir(), "state"))
	key := Fingerprint(Inputs{Torch: "1"})
	if _, err := c.Store(profile(key)); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Correction(key); ok {
		t.Fatal("there is none yet")
	}
	want := profiler.Correction{TimeRatio: 1.4, MemoryBytes: map[string]int64{"x": 5}, Steps: 30}
	if err := c.StoreCorrection(key, want); err != nil {
		t.Fatal(err)
	}
	if got, ok := c.Correction(key); !ok || got.TimeRatio != 1.4 || got.MemoryBytes["x"] != 5 || got.Steps != 30 {
		t.Errorf("got %+v, %v", got, ok)
	}
	if entries, err := c.List(); err != nil || len(entries) != 1 {
		t.Errorf("a correction is no profile: %d entries, %v", len(entries), err)
	}
	for _, bad := range []string{`{"version":1,"time_ratio":0}`, `{"version":2,"time_ratio":1}`, `{"version":1,"time_ratio":1,"memory_bytes":{"x":-1}}`, `{`} {
		if err := os.WriteFile(c.correctionPath(key), []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, ok := c.Correction(key); ok {
			t.Errorf("%s: got %+v", bad, got)
		}
	}
	if err := c.DropCorrection(key); err != nil {
		t.Fatal(err)
	}
	if err := c.DropCorrection(key); err != nil {
		t.Errorf("twice: %v", err)
	}
}
