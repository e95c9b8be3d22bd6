package rundir

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
)

const (
	reserveFile = ".reserve"
	// reserveBytes is enough for how a run ended, and for its report when nobody else takes it.
	reserveBytes = 256 << 10
)

// Reserve keeps some room on the disk for the end of the run: when the disk has become full, how
// the run ended is still written.
func (r *Run) Reserve() error {
	random := make([]byte, reserveBytes) // a disk that compresses would keep no room for zeros
	_, _ = rand.Read(random)
	if err := os.WriteFile(r.Path(reserveFile), random, 0o644); err != nil {
		_ = os.Remove(r.Path(reserveFile))
		return fmt.Errorf("reserve room: %w", err)
	}
	return nil
}

// release gives the reserved room back.
func (r *Run) release() { _ = os.Remove(r.Path(reserveFile)) }

// WriteAtLast is WriteFile for the end of a run. What cannot be written takes the reserved room:
// its blocks first, which nobody else can get, and where the disk writes no block twice, what is
// free when they are given back.
func (r *Run) WriteAtLast(name string, data []byte) error {
	err := WriteFile(r.Path(name), data)
	if err == nil {
		return nil
	}
	if r.intoReserve(name, data) == nil {
		return nil
	}
	r.release()
	if WriteFile(r.Path(name), data) == nil {
		return nil
	}
	return err
}

func (r *Run) intoReserve(name string, data []byte) error {
	f, err := os.OpenFile(r.Path(reserveFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(filepath.Join(r.Dir, reserveFile), r.Path(name))
	}
	return err
}
