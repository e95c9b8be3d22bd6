package virtual

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/cephalorun/cephalorun/profiler"
)

// File is a devices file that was read without problems.
type File struct {
	// Source names the file in messages.
	Source  string
	Devices []Spec
}

// Spec is one device as the file describes it.
type Spec struct {
	Name string
	Kind profiler.Kind
	// Index counts GPUs as a program would (CUDA's order after
	// CUDA_VISIBLE_DEVICES); -1 when the GPU is named by UUID or is a cpu.
	Index int
	// UUID is a GPU's UUID or a unique beginning of it; empty with Index.
	UUID        string
	MemoryBytes int64
	// SMPercent is 0 without a limit.
	SMPercent int
	// Threads is 0 when left to the launcher.
	Threads  int
	Slowdown float64
}

// Limits beyond which a number in a devices file is a slip.
const (
	maxThreads  = 4096
	maxSlowdown = 1000
	maxIndex    = 1023
)

// Read reads a devices file.
func Read(path string) (File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read devices file: %w", err)
	}
	return Parse(path, data)
}

// Parse is Read for the content of a file.
func Parse(source string, data []byte) (File, error) {
	var problems profiler.ProblemList
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	err := decoder.Decode(&document)
	switch {
	case errors.Is(err, io.EOF):
		problems.Add("", "the file is empty: it needs a list called devices")
	case err != nil:
		problems.Add("", "is not YAML: %v", err)
	case !errors.Is(decoder.Decode(&more), io.EOF):
		problems.Add("", "holds more than one YAML document")
	}
	if !problems.Empty() {
		return File{}, problems.Err(source)
	}
	f := File{Source: source}
	root := newMapping("", document.Content[0], &problems)
	if list, ok := root.take("devices", true); ok {
		f.Devices = readSpecs(list, &problems)
	}
	root.refuseRest()
	f.check(&problems)
	return f, problems.Err(source)
}

func readSpecs(list *yaml.Node, problems *profiler.ProblemList) []Spec {
	if list.Kind == yaml.AliasNode {
		list = list.Alias
	}
	if list.Kind != yaml.SequenceNode {
		problems.Add("devices", "must be a list of devices (line %d)", list.Line)
		return nil
	}
	if len(list.Content) == 0 {
		problems.Add("devices", "is empty: list at least one device")
	}
	var specs []Spec
	for i, node := range list.Content {
		specs = append(specs, readSpec(newMapping(fmt.Sprintf("devices[%d]", i), node, problems)))
	}
	return specs
}

func readSpec(m *mapping) Spec {
	s := Spec{
		Name:        m.text("name", true),
		Kind:        profiler.Kind(m.text("kind", true)),
		MemoryBytes: m.size("memory"),
		Index:       -1,
		Slowdown:    m.number("slowdown", 1, 1, maxSlowdown),
		Threads:     m.whole("threads", 0, 1, maxThreads),
	}
	if s.Kind == profiler.KindCPU {
		for _, name := range []string{"index", "uuid", "sm_percent"} {
			if _, ok := m.take(name, false); ok {
				m.problem(name, "is for cuda devices only")
			}
		}
	} else {
		s.Index = m.whole("index", -1, 0, maxIndex)
		s.UUID = m.text("uuid", false)
		s.SMPercent = m.whole("sm_percent", 0, 1, 100)
		if m.given["index"] && m.given["uuid"] {
			m.problem("uuid", "is given beside index: name the GPU one way")
		} else if s.Kind == profiler.KindCUDA && !m.given["index"] && !m.given["uuid"] {
			m.problem("index", "is missing: say which GPU, by index or by uuid")
		}
	}
	m.refuseRest()
	return s
}

// namePattern keeps names usable in file names, logs and UUIDs.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (f File) check(problems *profiler.ProblemList) {
	names, kinds := map[string]int{}, map[profiler.Kind]int{}
	for i, s := range f.Devices {
		path := fmt.Sprintf("devices[%d]", i)
		if !namePattern.MatchString(s.Name) {
			problems.Add(path+".name", "%q must be letters, digits, dot, dash and underscore, 63 at most", s.Name)
		} else if j, twice := names[s.Name]; twice {
			problems.Add(path+".name", "%q is also the name of devices[%d]", s.Name, j)
		} else {
			names[s.Name] = i
		}
		if s.Kind != profiler.KindCUDA && s.Kind != profiler.KindCPU {
			problems.Add(path+".kind", "%q is unknown: use cuda or cpu", s.Kind)
			continue
		}
		if _, seen := kinds[s.Kind]; !seen {
			kinds[s.Kind] = i
		}
	}
	if len(kinds) > 1 {
		cuda, cpu := kinds[profiler.KindCUDA], kinds[profiler.KindCPU]
		problems.Add("devices", "mix kinds: devices[%d] is cuda, devices[%d] is cpu; one run uses one kind", cuda, cpu)
	}
}

// Kind is the one kind of all devices of the file.
func (f File) Kind() profiler.Kind {
	if len(f.Devices) == 0 {
		return ""
	}
	return f.Devices[0].Kind
}
