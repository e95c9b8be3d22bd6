package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
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

	notThere bool // at its path is nothing that could be a checkpoint
}

// CheckpointTool reads checkpoints with the user's PyTorch, on the processor alone.
type CheckpointTool struct {
	Python  Python
	Environ []string
	// Dir is the folder that paths are relative to.
	Dir string
	// Tell says now and then what is being done, once it takes long; nil says nothing.
	Tell func(string)

	tellAfter time.Duration // between two words; 0 are sensible times
}

// Verify looks whether all of each checkpoint is there; deep reads every block too. Each report is
// handed on as soon as it is there, with the place of its path in the list. A path where there is
// no checkpoint at all does not keep the others from being looked at.
func (t CheckpointTool) Verify(ctx context.Context, paths []string, deep bool, each func(int, CheckpointReport)) error {
	args, places := []string{"verify"}, []int{}
	if deep {
		args[0] = "verify-deep"
	}
	for i, path := range paths {
		if why := noFolder(t.path(path)); why != "" {
			each(i, CheckpointReport{Path: t.path(path), Problems: []string{why}, notThere: true})
			continue
		}
		args, places = append(args, t.path(path)), append(places, i)
	}
	done := 0
	doing := func() string { return "reading checkpoint " + paths[places[min(done, len(places)-1)]] }
	return t.run(ctx, len(places), doing, func(r CheckpointReport) { each(places[done], r); done++ }, args...)
}

// noFolder says why a path cannot be a checkpoint; empty if it can.
func noFolder(path string) string {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such folder"
	case err != nil:
		return err.Error()
	case !info.IsDir():
		return "it is a file, and a checkpoint is a folder"
	}
	return ""
}

// Export writes the model of a checkpoint as one safetensors file. part is the key that
// the script saved the model under; empty finds it.
func (t CheckpointTool) Export(ctx context.Context, path, out, part string) (CheckpointReport, error) {
	if why := noFolder(t.path(path)); why != "" {
		return CheckpointReport{Problems: []string{why}, notThere: true}, nil
	}
	if err := exportable(t.path(path), t.path(out)); err != nil {
		return CheckpointReport{}, err
	}
	aside := filepath.Join(filepath.Dir(t.path(out)), "."+filepath.Base(out)+".part")
	defer os.Remove(aside) // of one that was ended in the middle
	args := []string{"export", t.path(path), t.path(out), aside}
	if part != "" {
		args = append(args, part)
	}
	var report CheckpointReport
	doing := func() string { return "writing " + out }
	if err := t.run(ctx, 1, doing, func(r CheckpointReport) { report = r }, args...); err != nil {
		return CheckpointReport{}, err
	}
	if why := report.NotWritten; why != "" {
		return CheckpointReport{}, machine("%s", why)
	}
	return report, nil
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
	if r.notThere {
		return usage("checkpoint %s: %s", path, text)
	}
	return usage("checkpoint %s is not whole: %s", path, text)
}
