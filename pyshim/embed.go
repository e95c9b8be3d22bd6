package pyshim

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// PackageName is the name of the Python package.
const PackageName = "cephalo"

//go:embed cephalo/*.py
var sources embed.FS

// Files lists the sources, as slash-separated paths, in order.
func Files() ([]string, error) {
	var files []string
	err := fs.WalkDir(sources, PackageName, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list python sources: %w", err)
	}
	slices.Sort(files)
	return files, nil
}

// Hash names the content of the package: "sha256:" and hexadecimal digits.
func Hash() (string, error) {
	files, err := Files()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range files {
		data, err := sources.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read python source: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(data))
		sum.Write(data)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// Extract writes the package below dir, which must not hold it yet.
func Extract(dir string) error {
	files, err := Files()
	if err != nil {
		return err
	}
	for _, name := range files {
		data, err := sources.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read python source: %w", err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(path.Dir(name))), 0o755); err != nil {
			return fmt.Errorf("write python package: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), data, 0o644); err != nil {
			return fmt.Errorf("write python package: %w", err)
		}
	}
	return nil
}
