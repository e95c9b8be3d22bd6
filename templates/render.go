package templates

import (
	"embed"
	"fmt"
	htmltemplate "html/template"
	"io"
	"strings"
	"text/template"
)

//go:embed *.py.tmpl
var pythonFiles embed.FS

//go:embed *.html.tmpl *.svg.tmpl
var pageFiles embed.FS

// Entry is what the Python entries need.
type Entry struct {
	RunID string
	// PackageDir is the folder that holds the package cephalo.
	PackageDir string
}

// Shim is the script that torchrun starts as every worker.
func Shim(e Entry) ([]byte, error) { return python("shim.py.tmpl", e) }

// Launcher is the script that starts torchrun.
func Launcher(e Entry) ([]byte, error) { return python("launcher.py.tmpl", e) }

// python renders a Python file. The functions turn any string into Python that
// means exactly that string, so that no path can become code.
func python(name string, data any) ([]byte, error) {
	t, err := template.New(name).Option("missingkey=error").
		Funcs(template.FuncMap{"path": pathLiteral, "comment": commentText}).ParseFS(pythonFiles, name)
	if err != nil {
		return nil, fmt.Errorf("read template %s: %w", name, err)
	}
	var out strings.Builder
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return []byte(out.String()), nil
}

// pathLiteral is a Python expression for a path, exact for any bytes.
func pathLiteral(path string) string {
	var b strings.Builder
	b.WriteString(`os.fsdecode(b"`)
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString(`")`)
	return b.String()
}

// commentText is what may stand inside a comment or a doc string.
func commentText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r == '-', r == '_', r == '.':
			return r
		default:
			return '_'
		}
	}, text)
}

// page renders an HTML or SVG file.
func page(w io.Writer, name string, data any) error {
	t, err := htmltemplate.New(name).Option("missingkey=error").ParseFS(pageFiles, name, "picture.svg.tmpl")
	if err != nil {
		return fmt.Errorf("read template %s: %w", name, err)
	}
	if err := t.Execute(w, data); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	return nil
}
