package main

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/cephalorun/cephalorun"

// allowed says which packages of the project each room may import, besides its own.
var allowed = map[string][]string{
	"solver":              {},
	"templates":           {},
	"pyshim":              {"templates"},
	"profiler":            {"pyshim"},
	"orchestrator":        {"profiler", "solver", "pyshim", "templates"},
	"cmd/cephalorun":      {"orchestrator", "profiler", "solver", "pyshim", "templates"},
	"cmd/cephalorun-nvml": {"profiler"},
}

// leaves import nothing of the project at all.
var leaves = []string{"orchestrator/supervise", "orchestrator/events", "orchestrator/rundir", "solver", "templates"}

func TestImportDirections(t *testing.T) {
	c := exec.Command("go", "list", "-e", "-f", "{{.ImportPath}}:{{range .Imports}} {{.}}{{end}}", module+"/...")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		path, imports, _ := strings.Cut(line, ":")
		from := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		room, known := roomOf(from)
		if !known {
			continue
		}
		checked++
		for _, imported := range strings.Fields(imports) {
			checkImport(t, from, room, imported)
		}
	}
	if checked < 10 {
		t.Errorf("only %d packages were looked at", checked)
	}
}

func checkImport(t *testing.T, from, room, imported string) {
	t.Helper()
	if strings.Contains(imported, "go-nvml") && from != "profiler/nvml" && from != "cmd/cephalorun-nvml" {
		t.Errorf("%s imports NVML, which would link it into the main program", from)
	}
	to, ours := strings.CutPrefix(imported, module+"/")
	if !ours {
		return
	}
	for _, leaf := range leaves {
		if from == leaf {
			t.Errorf("%s imports %s, and must import nothing of the project", from, to)
		}
	}
	if to == "profiler/nvml" && room != "cmd/cephalorun-nvml" {
		t.Errorf("%s imports %s, which would link NVML into the main program", from, to)
	}
	target, _ := roomOf(to)
	if target == room {
		return
	}
	for _, may := range allowed[room] {
		if target == may {
			return
		}
	}
	t.Errorf("%s imports %s, and %s may import only %v", from, to, room, allowed[room])
}

// roomOf is the room that a package belongs to.
func roomOf(path string) (string, bool) {
	best := ""
	for room := range allowed {
		if (path == room || strings.HasPrefix(path, room+"/")) && len(room) > len(best) {
			best = room
		}
	}
	return best, best != ""
}

func TestTheProgramBuildsWithoutCgo(t *testing.T) {
	c := exec.Command("go", "build", "-o", t.TempDir(), ".")
	c.Env = append(c.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
