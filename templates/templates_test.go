package templates

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run with -update and read the difference:\n%s", path, got)
	}
}

func TestGolden(t *testing.T) {
	e := Entry{RunID: "20260102-030405-train", PackageDir: "/state/runs/x/pyshim"}
	shim, err := Shim(e)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "shim.py", shim)
	launcher, err := Launcher(e)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "launcher.py", launcher)
	var page bytes.Buffer
	if err := Page(&page, Report{Title: "train <1>", Summary: []Fact{{"steps", "20"}},
		Ranks: Table{[]string{"rank", "ms"}, [][]string{{"0", "1.5"}}}, Losses: []float64{5, 4, 3}}); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.html", page.Bytes())
}

// User case 73: odd paths arrive as they are, and none becomes code.
func TestUserCase73OddPaths(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("the tests need a python3: %v", err)
	}
	for _, path := range []string{
		`/tmp/mein Modell (v2) $x 'é`, `/tmp/a"b`, `/tmp/back\slash`, "/tmp/new\nline", `/tmp/"); import os; ("`,
		"/tmp/\xff\xfe bytes", "/tmp/😀", "/tmp/{{.RunID}}", `/tmp/"""`,
	} {
		for name, render := range map[string]func(Entry) ([]byte, error){"shim": Shim, "launcher": Launcher} {
			text, err := render(Entry{RunID: `x"""` + path, PackageDir: path})
			if err != nil {
				t.Fatal(err)
			}
			check := `import ast, json, os, sys
tree = ast.parse(sys.stdin.buffer.read())
paths = [eval(compile(ast.Expression(n.value), "x", "eval")) for n in tree.body
         if isinstance(n, ast.Assign) and n.targets[0].id == "PACKAGE"]
print(json.dumps([list(os.fsencode(p)) for p in paths] + [len(tree.body)]))`
			c := exec.Command(python, "-c", check)
			c.Stdin = bytes.NewReader(text)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%s for %q is no Python: %s", name, path, out)
			}
			var got []any
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if name != "shim" {
				continue
			}
			var bytesOfPath []byte
			for _, b := range got[0].([]any) {
				bytesOfPath = append(bytesOfPath, byte(b.(float64)))
			}
			if string(bytesOfPath) != path {
				t.Errorf("path %q arrives as %q", path, bytesOfPath)
			}
			if strings.Contains(string(text), "{{") && !strings.Contains(path, "{{") {
				t.Error("something was not rendered")
			}
		}
	}
}

func TestMissingValueIsAnError(t *testing.T) {
	if _, err := python("shim.py.tmpl", map[string]string{"RunID": "x"}); err == nil {
		t.Error("no error")
	}
}

func TestCurve(t *testing.T) {
	cases := map[string]struct {
		losses []float64
		want   string
	}{
		"none":    {nil, ""},
		"one":     {[]float64{1}, ""},
		"falling": {[]float64{2, 1}, "0.0,0.0 600.0,200.0"},
		"flat":    {[]float64{1, 1}, "0.0,0.0 600.0,0.0"},
	}
	for name, c := range cases {
		if got := curve(c.losses); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
