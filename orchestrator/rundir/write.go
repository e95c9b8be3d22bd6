package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes a file aside and renames it, so that a reader sees the old
// content or the new one and never a part.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		var told *fs.PathError
		if errors.As(err, &told) {
			err = told.Err // without the name aside, which says nothing
		}
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// WriteJSON is WriteFile for a value, indented for people.
func WriteJSON(path string, value any) error {
	data, err := marshal(path, value)
	if err != nil {
		return err
	}
	return WriteFile(path, data)
}

// WriteJSONAtLast is WriteAtLast for a value.
func (r *Run) WriteJSONAtLast(name string, value any) error {
	data, err := marshal(r.Path(name), value)
	if err != nil {
		return err
	}
	return r.WriteAtLast(name, data)
}

func marshal(path string, value any) ([]byte, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return append(data, '\n'), nil
}
