package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/pyshim"
)

// CheckpointReport is what a look into a checkpoint found.
type CheckpointReport struct {
	Path     string   `json:"path,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Tensors  int      `json:"tensors"`
	Bytes    int64    `json:"bytes"`
	Files    int      `json:"files,omitempty"`
	// NotWritten says why the file to export to could not be written.
	NotWritten string `json:"not_written,omitempty"`
}

// CheckpointTool reads checkpoints with the user's PyTorch, on the processor alone.
type CheckpointTool struct {
	Python  Python
	Environ []string
	// Dir is the folder that paths are relative to.
	Dir string
}

// checkpointTask is what the interpreter runs; the arguments follow.
const checkpointTask = `
import sys
sys.path.insert(0, sys.argv[1])
from cephalo.checkpoint_export import main
sys.exit(main(sys.argv[2:]))
`

// Verify looks whether all of each checkpoint is there; deep reads every block too.
func (t CheckpointTool) Verify(ctx context.Context, paths []string, deep bool) ([]CheckpointReport, error) {
	for _, path := range paths {
		if info, err := os.Stat(t.path(path)); err != nil || !info.IsDir() {
			return nil, usage("checkpoint %s: there is no such folder", path)
		}
	}
	args := []string{"verify"}
	if deep {
		args[0] = "verify-deep"
	}
	for _, path := range paths {
		args = append(args, t.path(path))
	}
	return t.run(ctx, len(paths), args...)
}

// Export writes the model of a checkpoint as one safetensors file. part is the key that
// the script saved the model under; empty finds it.
func (t CheckpointTool) Export(ctx context.Context, path, out, part string) (CheckpointReport, error) {
	if err := exportable(t.path(path), t.path(out)); err != nil {
		return CheckpointReport{}, err
	}
	args := []string{"export", t.path(path), t.path(out)}
	if part != "" {
		args = append(args, part)
	}
	reports, err := t.run(ctx, 1, args...)
	if err != nil {
		return CheckpointReport{}, err
	}
	if why := reports[0].NotWritten; why != "" {
		return CheckpointReport{}, machine("%s", why)
	}
	return reports[0], nil
}

// exported ends the names of files that an export may replace.
const exported = ".safetensors"

// exportable refuses to write where something else than a file is, or belongs.
func exportable(path, out string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(out))
	if err != nil {
		return usage("export to %s: there is no folder %s", out, filepath.Dir(out))
	}
	if inside, err := filepath.EvalSymlinks(path); err == nil && dir == inside {
		return usage("export to %s: that is inside of the checkpoint; choose a file elsewhere", out)
	}
	if info, err := os.Stat(out); err == nil {
		switch {
		case !info.Mode().IsRegular():
			return usage("export to %s: it is there and is not a file", out)
		case filepath.Ext(out) != exported:
			return usage("export to %s: it is there, and only files named *%s are replaced; remove it or choose another name", out, exported)
		}
	}
	return nil
}

func (t CheckpointTool) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(t.Dir, path)
}

// run asks the interpreter, which answers with so many reports.
func (t CheckpointTool) run(ctx context.Context, want int, args ...string) ([]CheckpointReport, error) {
	dir, err := tempDir()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := pyshim.Extract(dir); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, t.Python.Path, append([]string{"-c", checkpointTask, dir}, args...)...)
	c.Dir, c.WaitDelay = "/", time.Second
	c.Env = append(t.Environ[:len(t.Environ):len(t.Environ)], "CUDA_VISIBLE_DEVICES=")
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, lastLine(string(exit.Stderr)))
		}
		return nil, machine("read checkpoint: %w", err)
	}
	var reports []CheckpointReport
	if err := json.Unmarshal(out, &reports); err != nil {
		return nil, machine("read checkpoint: the answer is %.80q: %w", out, err)
	}
	if len(reports) != want {
		return nil, machine("read checkpoint: %d answers for %d questions", len(reports), want)
	}
	return reports, nil
}

// Err is the report's problems as an error; nil without any.
func (r CheckpointReport) Err(path string) error {
	if len(r.Problems) == 0 {
		return nil
	}
	const shown = 10
	text := strings.Join(r.Problems[:min(shown, len(r.Problems))], "; ")
	if n := len(r.Problems) - shown; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return usage("checkpoint %s is not whole: %s", path, text)
}
