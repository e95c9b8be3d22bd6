package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePython writes a program that answers as an interpreter with that torch would.
func fakePython(t *testing.T, path, torch string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\necho '{\"path\": \"x\", \"python\": \"3.12.1\", \"torch\": \"" + torch + "\"}'\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPythonFinder(t *testing.T) {
	dir := t.TempDir()
	good := fakePython(t, filepath.Join(dir, "good", "python3"), "2.15.0+cpu")
	newer := fakePython(t, filepath.Join(dir, "newer", "python3"), "3.0.0a0")
	old := fakePython(t, filepath.Join(dir, "old", "python3"), "2.7.1")
	without := fakePython(t, filepath.Join(dir, "without", "python3"), "")
	cached := fakePython(t, filepath.Join(dir, "cache", "venv", "bin", "python"), "2.8.0")
	broken := filepath.Join(dir, "broken", "python3")
	_ = os.MkdirAll(filepath.Dir(broken), 0o755)
	_ = os.WriteFile(broken, []byte("#!/bin/sh\necho oops >&2\nexit 3\n"), 0o755)
	path := func(p string) string { return "PATH=" + filepath.Dir(p) }
	cache := "CEPHALO_CACHE=" + filepath.Join(dir, "cache")
	cases := map[string]struct {
		flag    string
		environ []string
		want    string // the path, or what the error says
		from    string // empty: an error
	}{
		"the flag":                            {good, []string{"CEPHALO_PYTHON=" + newer}, good, "--python"},
		"the environment":                     {"", []string{"CEPHALO_PYTHON=" + newer, path(good)}, newer, "CEPHALO_PYTHON"},
		"the path":                            {"", []string{path(good), cache}, good, "PATH"},
		"the cache, as the path has none":     {"", []string{path(without), cache}, cached, "cache"},
		"the cache, as the path has an old":   {"", []string{path(old), cache}, cached, "cache"},
		"the cache under XDG_CACHE_HOME":      {"", []string{"XDG_CACHE_HOME=" + dir + "/none", path(good)}, good, "PATH"},
		"a name in the path":                  {"python3", []string{path(good)}, good, "--python"},
		"a flag that is too old":              {old, []string{path(good)}, "has PyTorch 2.7.1, and 2.8 or newer is needed", ""},
		"a flag without PyTorch":              {without, []string{path(good)}, "has no PyTorch", ""},
		"a flag that is not there":            {filepath.Join(dir, "nothing"), nil, "no Python at", ""},
		"a flag that is a folder":             {dir, nil, "it is not a program", ""},
		"an environment that does not work":   {"", []string{"CEPHALO_PYTHON=" + broken}, "oops", ""},
		"nothing at all":                      {"", []string{"PATH=/nowhere"}, "there is no python3 on the PATH", ""},
		"only an old one: what to do is said": {"", []string{path(old)}, "--python, or run scripts/setup.sh", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := PythonFinder{Flag: c.flag, Environ: c.environ}.Find(context.Background())
			if c.from == "" {
				if !errors.Is(err, ErrMachine) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || p.Path != c.want || p.From != c.from {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func TestNewEnough(t *testing.T) {
	for version, want := range map[string]bool{
		"2.8.0": true, "2.15.0a0+git12": true, "3.0": true, "2.7.9": false, "1.13.1": false, "": false, "two": false, "2.x": false,
	} {
		if got := newEnough(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
