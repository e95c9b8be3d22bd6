package yamlmap

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cephalorun/cephalorun/profiler"
)

// Mapping reads one YAML mapping field by field; what nobody asked for is an
// unknown field.
type Mapping struct {
	path     string
	names    []string // in the file's order
	values   map[string]*yaml.Node
	known    []string
	given    map[string]bool
	problems *profiler.ProblemList
}

// New opens a mapping; path is where it stands in the file.
func New(path string, node *yaml.Node, problems *profiler.ProblemList) *Mapping {
	m := &Mapping{path: path, values: map[string]*yaml.Node{}, given: map[string]bool{}, problems: problems}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		problems.Add(path, "must be a mapping of fields (line %d)", node.Line)
		return m
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if _, twice := m.values[name]; twice {
			m.Problem(name, "is given twice (line %d)", node.Content[i].Line)
			continue
		}
		m.names = append(m.names, name)
		m.values[name] = value
	}
	return m
}

// Problem notes what is wrong with a field.
func (m *Mapping) Problem(name, format string, args ...any) {
	path := name
	if m.path != "" {
		path = m.path + "." + name
	}
	m.problems.Add(path, format, args...)
}

// Has reports whether a field is there.
func (m *Mapping) Has(name string) bool {
	m.know(name)
	_, ok := m.values[name]
	return ok
}

// know lists a field as one that the file may have.
func (m *Mapping) know(name string) {
	if !slices.Contains(m.known, name) {
		m.known = append(m.known, name)
	}
}

// Given reports whether a field that was asked for was there.
func (m *Mapping) Given(name string) bool { return m.given[name] }

// Need reports those of the fields that are not there.
func (m *Mapping) Need(names ...string) {
	for _, name := range names {
		if _, ok := m.values[name]; !ok {
			m.Problem(name, "is missing")
		}
	}
}

// Take removes a field.
func (m *Mapping) Take(name string, required bool) (*yaml.Node, bool) {
	m.know(name)
	value, ok := m.values[name]
	delete(m.values, name)
	if ok {
		m.given[name] = true
	} else if required {
		m.Problem(name, "is missing")
	}
	return value, ok
}

// RefuseRest reports the fields that were never asked for.
func (m *Mapping) RefuseRest() {
	for _, name := range m.names {
		if value, ok := m.values[name]; ok {
			m.Problem(name, "is an unknown field (line %d); known are %s", value.Line, join(m.known))
		}
	}
}

// Text reads a text.
func (m *Mapping) Text(name string, required bool) string {
	node, ok := m.Take(name, required)
	if !ok {
		return ""
	}
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		m.Problem(name, "must be a text (line %d)", node.Line)
		return ""
	}
	if required && strings.TrimSpace(node.Value) == "" {
		m.Problem(name, "is empty (line %d)", node.Line)
	}
	return node.Value
}

// Size reads a memory size, which must be there.
func (m *Mapping) Size(name string) int64 {
	node, ok := m.Take(name, true)
	if !ok {
		return 0
	}
	n, err := profiler.ParseSize(node.Value)
	if err != nil {
		m.Problem(name, "%v", err)
	}
	return n
}

// Number reads a number within bounds; without the field it is otherwise.
func (m *Mapping) Number(name string, otherwise, least, most float64) float64 {
	node, ok := m.Take(name, false)
	if !ok {
		return otherwise
	}
	v, err := strconv.ParseFloat(node.Value, 64)
	if err != nil || math.IsNaN(v) || v < least || v > most {
		m.Problem(name, "is %q, must be a number from %v to %v", node.Value, least, most)
		return otherwise
	}
	return v
}

// Truth reads true or false.
func (m *Mapping) Truth(name string) bool {
	node, ok := m.Take(name, false)
	if !ok {
		return false
	}
	v, err := strconv.ParseBool(node.Value)
	if err != nil {
		m.Problem(name, "is %q, must be true or false", node.Value)
	}
	return v
}

// List reads a list of mappings, one at least, and calls each for every one.
func (m *Mapping) List(name string, each func(*Mapping)) {
	node, ok := m.Take(name, true)
	if !ok {
		return
	}
	if node.Kind != yaml.SequenceNode {
		m.Problem(name, "must be a list (line %d)", node.Line)
		return
	}
	if len(node.Content) == 0 {
		m.Problem(name, "is empty: list at least one")
	}
	at := name
	if m.path != "" {
		at = m.path + "." + name
	}
	for i, item := range node.Content {
		each(New(fmt.Sprintf("%s[%d]", at, i), item, m.problems))
	}
}

// Whole reads a whole number within bounds; without the field it is otherwise.
func (m *Mapping) Whole(name string, otherwise, least, most int) int {
	node, ok := m.Take(name, false)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(node.Value)
	if err != nil || n < least || n > most {
		m.Problem(name, "is %q, must be a whole number from %d to %d", node.Value, least, most)
		return otherwise
	}
	return n
}

func join(names []string) string {
	out := ""
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			out += " and "
		default:
			out += ", "
		}
		out += name
	}
	return out
}
