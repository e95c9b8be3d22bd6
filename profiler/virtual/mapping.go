package virtual

import (
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/cephalorun/cephalorun/profiler"
)

// mapping reads one YAML mapping field by field; what nobody asked for is an
// unknown field.
type mapping struct {
	path     string
	names    []string // in the file's order
	values   map[string]*yaml.Node
	known    []string
	given    map[string]bool
	problems *profiler.ProblemList
}

func newMapping(path string, node *yaml.Node, problems *profiler.ProblemList) *mapping {
	m := &mapping{path: path, values: map[string]*yaml.Node{}, given: map[string]bool{}, problems: problems}
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
			m.problem(name, "is given twice (line %d)", node.Content[i].Line)
			continue
		}
		m.names = append(m.names, name)
		m.values[name] = value
	}
	return m
}

func (m *mapping) problem(name, format string, args ...any) {
	path := name
	if m.path != "" {
		path = m.path + "." + name
	}
	m.problems.Add(path, format, args...)
}

func (m *mapping) take(name string, required bool) (*yaml.Node, bool) {
	m.known = append(m.known, name)
	value, ok := m.values[name]
	delete(m.values, name)
	if ok {
		m.given[name] = true
	} else if required {
		m.problem(name, "is missing")
	}
	return value, ok
}

// refuseRest reports the fields that were never asked for.
func (m *mapping) refuseRest() {
	for _, name := range m.names {
		if value, ok := m.values[name]; ok {
			m.problem(name, "is an unknown field (line %d); known are %s", value.Line, join(m.known))
		}
	}
}

func (m *mapping) text(name string, required bool) string {
	node, ok := m.take(name, required)
	if !ok {
		return ""
	}
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		m.problem(name, "must be a text (line %d)", node.Line)
		return ""
	}
	return node.Value
}

func (m *mapping) size(name string) int64 {
	node, ok := m.take(name, true)
	if !ok {
		return 0
	}
	n, err := profiler.ParseSize(node.Value)
	if err != nil {
		m.problem(name, "%v", err)
	}
	return n
}

func (m *mapping) number(name string, otherwise, least, most float64) float64 {
	node, ok := m.take(name, false)
	if !ok {
		return otherwise
	}
	v, err := strconv.ParseFloat(node.Value, 64)
	if err != nil || math.IsNaN(v) || v < least || v > most {
		m.problem(name, "is %q, must be a number from %v to %v", node.Value, least, most)
		return otherwise
	}
	return v
}

func (m *mapping) whole(name string, otherwise, least, most int) int {
	node, ok := m.take(name, false)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(node.Value)
	if err != nil || n < least || n > most {
		m.problem(name, "is %q, must be a whole number from %d to %d", node.Value, least, most)
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
