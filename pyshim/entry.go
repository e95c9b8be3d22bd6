package pyshim

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cephalorun/cephalorun/templates"
)

// Names of what Prepare writes.
const (
	packageDir   = "pyshim"
	shimFile     = "shim.py"
	launcherFile = "launcher.py"
)

// Entry is what a run starts.
type Entry struct {
	Shim     string // what torchrun starts as every worker
	Launcher string // what Python starts: torchrun
}

// Prepare writes the package and the entries of a run into its folder.
func Prepare(runDir, runID string) (Entry, error) {
	packages := filepath.Join(runDir, packageDir)
	if err := Extract(packages); err != nil {
		return Entry{}, err
	}
	data := templates.Entry{RunID: runID, PackageDir: packages}
	e := Entry{Shim: filepath.Join(runDir, shimFile), Launcher: filepath.Join(runDir, launcherFile)}
	for path, render := range map[string]func(templates.Entry) ([]byte, error){
		e.Shim: templates.Shim, e.Launcher: templates.Launcher,
	} {
		text, err := render(data)
		if err != nil {
			return Entry{}, err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return Entry{}, fmt.Errorf("write entry: %w", err)
		}
	}
	return e, nil
}
