package orchestrator

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A checkpoint says itself how large its files are, so that one cut short is found where no run
// knows it.
func TestCheckpointsCutShort(t *testing.T) {
	metadata, err := os.ReadFile("pickle/testdata/checkpoint.metadata")
	if err != nil {
		t.Fatal(err)
	}
	const size = 37566 // what the metadata says
	for name, c := range map[string]struct {
		metadata []byte
		size     int64 // below 0: no file
		want     string
	}{
		"whole":                 {metadata, size, ""},
		"more than was written": {metadata, size + 1, ""},
		"data cut short":        {metadata, size - 1, "__0_0.distcp has 37565 of 37566 bytes"},
		"data missing":          {metadata, -1, "__0_0.distcp is missing"},
		"metadata cut short":    {metadata[:len(metadata)/2], size, ".metadata cannot be read: it is cut short"},
		"no metadata":           {[]byte("nonsense"), size, ".metadata cannot be read: it is no pickle"},
		"of a kind not known":   {[]byte("\x80\x04\xff"), size, ""},
		"empty":                 {nil, size, ".metadata is empty"},
	} {
		dir := filepath.Join(t.TempDir(), "step-1")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, metadataFile), c.metadata, 0o644); err != nil {
			t.Fatal(err)
		}
		if c.size >= 0 {
			data := filepath.Join(dir, "__0_0.distcp")
			if err := os.WriteFile(data, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(data, c.size); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := CheckpointsIn(filepath.Dir(dir)); err != nil || len(found) != 1 || found[0].Problem != c.want {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
}

// What a run leaves is named where its own folder is gone, but only what is there.
func TestWhatIsLeftOfARunWithoutItsFolder(t *testing.T) {
	dir := t.TempDir()
	err := errors.New("no such file")
	saved := &savedCheckpoint{Path: dir}
	const lost = "the run's folder cannot be written: no such file"
	if got := withoutFolder(err, nil); got != lost {
		t.Error(got)
	}
	if got := withoutFolder(err, saved); got != lost {
		t.Error(got)
	}
	metadata, readErr := os.ReadFile("pickle/testdata/checkpoint.metadata")
	if readErr != nil {
		t.Fatal(readErr)
	}
	for name, data := range map[string][]byte{"__0_0.distcp": make([]byte, 37566), metadataFile: metadata} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := withoutFolder(err, saved), lost+"; start it anew to go on from "+dir+", which is whole"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
