package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/cephalorun/cephalorun/profiler"
)

// maxSources bounds how many files a script's imports are followed through.
const maxSources = 2000

// importPattern finds "import a.b, c as d" and "from .a.b import c, d" at the
// start of a line, indented or not.
var importPattern = regexp.MustCompile(`(?m)^[ \t]*(?:import[ \t]+([^#\n;]+)|from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^#\n;]+))`)

// ScriptSources is the script and, followed through import statements, every
// module that lies beside it: the model in model.py changes costs as much as
// the script itself. Installed packages are not followed. Paths are relative
// to the script's folder, in a fixed order.
func ScriptSources(script string) ([]Source, error) {
	root := filepath.Dir(script)
	content, err := profiler.ReadFile(script, profiler.MostInputBytes)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	found := map[string][]byte{filepath.Base(script): content}
	queue := []string{filepath.Base(script)}
	for len(queue) > 0 && len(found) < maxSources {
		path := queue[0]
		queue = queue[1:]
		for _, candidate := range imported(path, found[path]) {
			if _, known := found[candidate]; known {
				continue
			}
			path := filepath.Join(root, candidate)
			if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || isNotFile(err) || err == nil && !info.Mode().IsRegular() {
				continue
			}
			data, err := profiler.ReadFile(path, profiler.MostInputBytes)
			if err != nil {
				return nil, fmt.Errorf("read module of the script: %w", err)
			}
			found[candidate] = data
			queue = append(queue, candidate)
		}
	}
	return ordered(filepath.Base(script), found), nil
}

// ordered puts the script first and the others by path.
func ordered(script string, found map[string][]byte) []Source {
	out := []Source{{Path: "script", Content: found[script]}}
	delete(found, script)
	paths := make([]string, 0, len(found))
	for path := range found {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		out = append(out, Source{Path: path, Content: found[path]})
	}
	return out
}

// imported lists the files that the import statements of a file could mean.
func imported(path string, content []byte) []string {
	var out []string
	for _, m := range importPattern.FindAllStringSubmatch(string(content), -1) {
		if m[1] != "" {
			for _, name := range names(m[1]) {
				out = append(out, moduleFiles("", name)...)
			}
			continue
		}
		folder, module := "", m[2]
		if strings.HasPrefix(module, ".") {
			folder = filepath.Dir(path)
			module = module[1:]
			for strings.HasPrefix(module, ".") {
				folder, module = filepath.Join(folder, ".."), module[1:]
			}
		}
		out = append(out, moduleFiles(folder, module)...)
		for _, name := range names(m[3]) {
			out = append(out, moduleFiles(folder, strings.TrimPrefix(module+"."+name, "."))...)
		}
	}
	return out
}

// names cuts "a.b as x, c" into a.b and c.
func names(list string) []string {
	var out []string
	for _, part := range strings.Split(strings.Trim(list, "() \t\r\n\\"), ",") {
		fields := strings.Fields(part)
		if len(fields) > 0 && fields[0] != "*" {
			out = append(out, fields[0])
		}
	}
	return out
}

// moduleFiles lists a.py, a/__init__.py, a/b.py and a/b/__init__.py for a.b.
func moduleFiles(folder, module string) []string {
	var out []string
	at := folder
	if module == "" {
		return []string{filepath.Join(folder, "__init__.py")}
	}
	for _, part := range strings.Split(module, ".") {
		if part == "" {
			continue
		}
		at = filepath.Join(at, part)
		out = append(out, at+".py", filepath.Join(at, "__init__.py"))
	}
	return slices.DeleteFunc(out, func(p string) bool { return !filepath.IsLocal(p) })
}

// isNotFile is true for a path through a file, and for names that no file can have.
func isNotFile(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}
