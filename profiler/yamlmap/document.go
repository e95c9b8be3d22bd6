package yamlmap

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/cephalorun/cephalorun/profiler"
)

// Open opens a file that holds one document, a mapping; nil if it is none. wants
// says what an empty file lacks.
func Open(data []byte, wants string, problems *profiler.ProblemList) *Mapping {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	err := decoder.Decode(&document)
	switch {
	case errors.Is(err, io.EOF), err == nil && len(document.Content) == 0:
		problems.Add("", "the file is empty: it needs %s", wants)
	case err != nil:
		problems.Add("", "is not YAML: %v", err)
	case !errors.Is(decoder.Decode(&more), io.EOF):
		problems.Add("", "holds more than one YAML document")
	default:
		return New("", document.Content[0], problems)
	}
	return nil
}
