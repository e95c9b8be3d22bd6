package rpc

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cephalorun/cephalorun/profiler"
)

// Locate finds the plugin: the given path, or beside the running executable
// (links followed).
func Locate(given string) (string, error) {
	if given != "" {
		return check(given, "check the path that was given for it")
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("%w: find the running executable: %w", profiler.ErrCannotAsk, err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return check(filepath.Join(filepath.Dir(self), BinaryName), "it is built by `make build` and belongs beside cephalorun")
}

func check(path, advice string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: the NVML plugin %s was not found: %s: %w", profiler.ErrCannotAsk, path, advice, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("%w: the NVML plugin %s is not an executable file: %s", profiler.ErrCannotAsk, path, advice)
	}
	return path, nil
}
