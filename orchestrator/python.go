package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// minTorch is the oldest PyTorch that is supported: major and minor version.
var minTorch = [2]int{2, 8}

// Python is an interpreter that has PyTorch.
type Python struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Torch   string `json:"torch"`
	// From says where it was found: "--python", "CEPHALO_PYTHON", "PATH", "cache".
	From string `json:"from"`
}

// pythonFacts is what an interpreter answers.
type pythonFacts struct {
	Path   string `json:"path"`
	Python string `json:"python"`
	Torch  string `json:"torch"` // empty without
}

// PythonFinder looks for a Python. Flag is the value of --python.
type PythonFinder struct {
	Flag    string
	Environ []string
}

// Find applies the rule: --python, CEPHALO_PYTHON, a python3 on the PATH that has a
// recent PyTorch, the environment that set-up made. One that was named must do; the
// others are tried in turn. The error says what was found and what to do.
func (f PythonFinder) Find(ctx context.Context) (Python, error) {
	if f.Flag != "" {
		return f.named(ctx, f.Flag, "--python")
	}
	if path := getenv(f.Environ, "CEPHALO_PYTHON"); path != "" {
		return f.named(ctx, path, "CEPHALO_PYTHON")
	}
	var tried []string
	for _, c := range f.candidates() {
		p, err := f.probe(ctx, c.path, c.from)
		if err == nil {
			return p, nil
		}
		tried = append(tried, err.Error())
	}
	if len(tried) == 0 {
		tried = append(tried, "there is no python3 on the PATH")
	}
	return Python{}, machine("no Python with PyTorch %s or newer: %s; name one with --python, or run scripts/setup.sh",
		versionText(minTorch), strings.Join(tried, "; "))
}

func (f PythonFinder) named(ctx context.Context, path, from string) (Python, error) {
	found, err := f.look(path)
	if err != nil {
		return Python{}, machine("%s: no Python at %s: %w", from, path, err)
	}
	p, err := f.probe(ctx, found, from)
	if err != nil {
		return Python{}, machine("%s: %w", from, err)
	}
	return p, nil
}

// candidate is one interpreter to try.
type candidate struct{ path, from string }

func (f PythonFinder) candidates() []candidate {
	var all []candidate
	if path, err := f.look("python3"); err == nil {
		all = append(all, candidate{path, "PATH"})
	}
	if path := f.cached(); path != "" {
		if _, err := os.Stat(path); err == nil {
			all = append(all, candidate{path, "cache"})
		}
	}
	return all
}

// cached is the interpreter of the environment that set-up makes.
func (f PythonFinder) cached() string {
	cache := getenv(f.Environ, "CEPHALO_CACHE")
	if cache == "" {
		base := getenv(f.Environ, "XDG_CACHE_HOME")
		if base == "" {
			home := getenv(f.Environ, "HOME")
			if home == "" {
				return ""
			}
			base = filepath.Join(home, ".cache")
		}
		cache = filepath.Join(base, "cephalorun")
	}
	return filepath.Join(cache, "venv", "bin", "python")
}

// look finds a program by path, or by name in the PATH of the environment that was
// handed in.
func (f PythonFinder) look(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		path, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		return path, executable(path)
	}
	for _, dir := range filepath.SplitList(getenv(f.Environ, "PATH")) {
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err == nil && executable(path) == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return errors.New("it is not a program")
	}
	return nil
}

// askLimit bounds the question to an interpreter; a cold network disk is slow.
const askLimit = 60 * time.Second

// question asks for versions without importing torch, which takes seconds.
const question = `
import json, sys
from importlib import metadata
try:
    torch = metadata.version("torch")
except metadata.PackageNotFoundError:
    torch = ""
print(json.dumps({"path": sys.executable, "python": "%d.%d.%d" % sys.version_info[:3], "torch": torch}))
`

// probe asks an interpreter and judges the answer.
func (f PythonFinder) probe(ctx context.Context, path, from string) (Python, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	c := exec.CommandContext(ctx, path, "-c", question)
	// With -c Python also looks for modules in the working folder, where a file of the
	// user's may have any name.
	c.Dir, c.Env = "/", f.Environ
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", askLimit)
		} else if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, lastLine(string(exit.Stderr)))
		}
		return Python{}, fmt.Errorf("%s does not work: %w", path, err)
	}
	var facts pythonFacts
	if err := json.Unmarshal(out, &facts); err != nil {
		return Python{}, fmt.Errorf("%s is no Python: it answered %.60q", path, out)
	}
	if facts.Torch == "" {
		return Python{}, fmt.Errorf("%s (Python %s) has no PyTorch", path, facts.Python)
	}
	if !newEnough(facts.Torch) {
		return Python{}, fmt.Errorf("%s has PyTorch %s, and %s or newer is needed", path, facts.Torch, versionText(minTorch))
	}
	return Python{Path: path, Version: facts.Python, Torch: facts.Torch, From: from}, nil
}

// newEnough reads the beginning of a version such as "2.15.0a0+git1234".
func newEnough(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	return major > minTorch[0] || major == minTorch[0] && minor >= minTorch[1]
}

func versionText(v [2]int) string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// getenv is the value of a name in a list such as os.Environ(); the last one counts.
func getenv(environ []string, name string) string {
	value := ""
	for _, entry := range environ {
		if n, v, ok := strings.Cut(entry, "="); ok && n == name {
			value = v
		}
	}
	return value
}
