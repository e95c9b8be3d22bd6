package pyshim

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sourcesIn lists the Python files of a tree, caches excepted.
func sourcesIn(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(root), PackageName, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".py") {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func TestEmbeddedSetEqualsTheTree(t *testing.T) {
	embedded, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	if tree := sourcesIn(t, "."); !slices.Equal(embedded, tree) {
		t.Errorf("embedded %v\nin the tree %v", embedded, tree)
	}
}

func TestPrepareWritesWhatIsEmbedded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `mein Modell (v2) $x 'é`)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := Prepare(dir, "id")
	if err != nil {
		t.Fatal(err)
	}
	embedded, _ := Files()
	if written := sourcesIn(t, filepath.Join(dir, packageDir)); !slices.Equal(embedded, written) {
		t.Errorf("written %v", written)
	}
	for _, path := range []string{e.Shim, e.Launcher} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestHashNamesTheContent(t *testing.T) {
	a, err := Hash()
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := Hash(); a != b || !strings.HasPrefix(a, "sha256:") || len(a) != 71 {
		t.Errorf("hash %s and %s", a, b)
	}
}
