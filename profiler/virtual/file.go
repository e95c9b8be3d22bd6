package virtual

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/yamlmap"
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
	data, err := profiler.ReadFile(path, profiler.MostYAMLBytes)
	if err != nil {
		return File{}, fmt.Errorf("read devices file: %w", err)
	}
	return Parse(path, data)
}

// Parse is Read for the content of a file.
func Parse(source string, data []byte) (File, error) {
	var problems profiler.ProblemList
	root := yamlmap.Open(data, "a list called devices", &problems)
	if !problems.Empty() {
		return File{}, problems.Err(source)
	}
	f := File{Source: source}
	if list, ok := root.Take("devices", true); ok {
		f.Devices = readSpecs(list, &problems)
	}
	root.RefuseRest()
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
		specs = append(specs, readSpec(yamlmap.New(fmt.Sprintf("devices[%d]", i), node, problems)))
	}
	return specs
}

func readSpec(m *yamlmap.Mapping) Spec {
	s := Spec{
		Name:        m.Text("name", true),
		Kind:        profiler.Kind(m.Text("kind", true)),
		MemoryBytes: m.Size("memory"),
		Index:       -1,
		Slowdown:    m.Number("slowdown", 1, 1, maxSlowdown),
		Threads:     m.Whole("threads", 0, 1, maxThreads),
	}
	if s.Kind == profiler.KindCPU {
		for _, name := range []string{"index", "uuid", "sm_percent"} {
			if _, ok := m.Take(name, false); ok {
				m.Problem(name, "is for cuda devices only")
			}
		}
	} else {
		s.Index = m.Whole("index", -1, 0, maxIndex)
		s.UUID = m.Text("uuid", false)
		s.SMPercent = m.Whole("sm_percent", 0, 1, 100)
		if m.Given("index") && m.Given("uuid") {
			m.Problem("uuid", "is given beside index: name the GPU one way")
		} else if s.Kind == profiler.KindCUDA && !m.Given("index") && !m.Given("uuid") {
			m.Problem("index", "is missing: say which GPU, by index or by uuid")
		}
	}
	m.RefuseRest()
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
