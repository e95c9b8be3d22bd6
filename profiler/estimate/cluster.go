package estimate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/yamlmap"
)

// Cluster is a cluster file that was read without problems.
type Cluster struct {
	Name string
	// BetweenGbitPerS is the link of one node to the others, 10^9 bits a second.
	BetweenGbitPerS float64
	Nodes           []Node
}

// Node is one machine, or several that are alike (Count).
type Node struct {
	Name  string
	Count int
	// InsideGBPerS is the link of one GPU to another, 10^9 bytes a second.
	InsideGBPerS float64
	// HostGBPerS is the link of each GPU to host memory, which offloading uses.
	HostGBPerS float64
	// HostMemoryBytes is what offloading may use of the node's memory, 0 for no
	// limit; the GPUs share it equally.
	HostMemoryBytes int64
	GPUs            []Group
}

// Group is a number of GPUs of one name.
type Group struct {
	GPU   string
	Count int
	// MemoryBytes is what may be used of each, 0 for what the catalogue says.
	MemoryBytes int64
}

// Bounds on what a cluster file may say; beyond them a number is a slip.
const (
	maxGPUs       = 4096
	maxLinkSpeed  = 1e5
	leastMemory   = 1 << 20
	maxNodeCopies = 4096
	usualHostLink = 12 // PCIe 3.0 x16, as measured copies from pinned memory reach
)

// ReadCluster reads a cluster file. measured are names beside the catalogue's.
func ReadCluster(path string, measured []string) (Cluster, error) {
	data, err := profiler.ReadInput(path, profiler.MostYAMLBytes)
	if err != nil {
		return Cluster{}, fmt.Errorf("%w: read cluster file: %w", profiler.ErrInvalid, err)
	}
	return ParseCluster(path, data, measured)
}

// ParseCluster is ReadCluster for the content of a file. What is wrong is
// reported all at once, with field paths, as a ProblemsError.
func ParseCluster(source string, data []byte, measured []string) (Cluster, error) {
	var problems profiler.ProblemList
	root := yamlmap.Open(data, "a list called nodes", &problems)
	if root == nil {
		return Cluster{}, problems.Err(source)
	}
	c := Cluster{Name: root.Text("name", false), BetweenGbitPerS: root.Number("between_gbit_per_s", 0, 1e-3, maxLinkSpeed)}
	names := map[string]int{}
	at, gpus, nodes := 0, 0, 0
	root.List("nodes", func(m *yamlmap.Mapping) {
		n := readNode(m, measured)
		if n.Name == "" {
			n.Name = fmt.Sprintf("node%d", at)
		}
		if first, twice := names[n.Name]; twice {
			m.Problem("name", "%q is also the name of nodes[%d]", n.Name, first)
		}
		names[n.Name] = at
		at, gpus, nodes = at+1, gpus+n.Count*n.gpus(), nodes+n.Count
		c.Nodes = append(c.Nodes, n)
	})
	if nodes > 1 && !root.Given("between_gbit_per_s") {
		problems.Add("between_gbit_per_s", "is missing: there are %d nodes", nodes)
	}
	if gpus > maxGPUs {
		problems.Add("nodes", "hold %d GPUs, more than %d", gpus, maxGPUs)
	}
	root.RefuseRest()
	if c.Name == "" {
		c.Name = "cluster"
	}
	return c, problems.Err(source)
}

func readNode(m *yamlmap.Mapping, measured []string) Node {
	n := Node{Name: m.Text("name", false), Count: m.Whole("count", 1, 1, maxNodeCopies),
		InsideGBPerS: m.Number("inside_gb_per_s", 0, 1e-3, maxLinkSpeed),
		HostGBPerS:   m.Number("host_gb_per_s", usualHostLink, 1e-3, maxLinkSpeed)}
	if m.Has("host_memory") {
		n.HostMemoryBytes = m.Size("host_memory")
	}
	m.List("gpus", func(g *yamlmap.Mapping) { n.GPUs = append(n.GPUs, readGroup(g, measured)) })
	if n.gpus() > 1 && !m.Given("inside_gb_per_s") {
		m.Problem("inside_gb_per_s", "is missing: the node has %d GPUs", n.gpus())
	}
	m.RefuseRest()
	return n
}

func readGroup(m *yamlmap.Mapping, measured []string) Group {
	g := Group{GPU: m.Text("gpu", true), Count: m.Whole("count", 1, 1, maxGPUs)}
	if g.GPU != "" && !KnownGPU(g.GPU, measured) {
		m.Problem("gpu", "%q is not known; known are %s", g.GPU, strings.Join(append(Names(), measured...), ", "))
	}
	if m.Has("memory") {
		if g.MemoryBytes = m.Size("memory"); g.MemoryBytes > 0 && g.MemoryBytes < leastMemory {
			m.Problem("memory", "is %d bytes: no GPU has so little", g.MemoryBytes)
		}
		if gpu, ok := Find(g.GPU); ok && !named(g.GPU, measured) && g.MemoryBytes > gpu.MemoryMiB<<20 {
			m.Problem("memory", "is %s, and %s has %s: give at most that, or leave it out", profiler.FormatSize(g.MemoryBytes), gpu.Name, profiler.FormatSize(gpu.MemoryMiB<<20))
		}
	}
	m.RefuseRest()
	return g
}

// KnownGPU says that there is something to estimate a GPU from.
func KnownGPU(name string, measured []string) bool {
	_, ok := Find(name)
	return ok || slices.Contains(measured, AnyGPU) || named(name, measured)
}

// AnyGPU among the measured ones stands for those of a profile that could not be read: any
// name may be among them.
const AnyGPU = "*"

func named(name string, measured []string) bool {
	return slices.ContainsFunc(measured, func(m string) bool { return plain(m) == plain(name) })
}

// Names are those of the catalogue.
func Names() []string {
	var names []string
	for _, g := range Catalogue() {
		names = append(names, g.Name)
	}
	return names
}

func (n Node) gpus() int {
	sum := 0
	for _, g := range n.GPUs {
		sum += g.Count
	}
	return sum
}
