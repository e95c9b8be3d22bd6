package templates

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
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
	paths := []string{
		`/tmp/mein Modell (v2) $x 'é`, `/tmp/a"b`, `/tmp/back\slash`, "/tmp/new\nline", `/tmp/"); import os; ("`,
		"/tmp/\xff\xfe bytes", "/tmp/😀", "/tmp/{{.RunID}}", `/tmp/"""`,
	}
	var texts [][]byte
	for _, path := range paths {
		for _, render := range []func(Entry) ([]byte, error){Shim, Launcher} {
			text, err := render(Entry{RunID: `x"""` + path, PackageDir: path})
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
	}
	// Python parses every text and gives back the bytes of the paths that it finds.
	const check = `import ast, base64, json, os, sys
def found(text):
    tree = ast.parse(base64.b64decode(text))
    paths = [n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "PACKAGE"]
    values = [eval(compile(ast.Expression(p), "x", "eval")) for p in paths]
    return [base64.b64encode(os.fsencode(v)).decode() for v in values]
print(json.dumps([found(t) for t in json.load(sys.stdin)]))`
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "-c", check)
	c.Stdin = bytes.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("some text is no Python: %s", out)
	}
	var got [][][]byte
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		if shim := got[2*i]; len(shim) != 1 || string(shim[0]) != path {
			t.Errorf("path %q arrives as %q", path, shim)
		}
		if launcher := got[2*i+1]; len(launcher) != 0 {
			t.Errorf("the launcher has paths: %q", launcher)
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
