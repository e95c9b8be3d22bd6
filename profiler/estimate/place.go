package estimate

// place is one GPU of a cluster.
type place struct {
	gpu         string
	memoryBytes int64 // 0 for what the catalogue says
	node        int   // counted from 0, copies apart
	nodeName    string
	host        Host
}

// Host is what offloading has to do with: a link in bytes per millisecond and
// memory, 0 for no limit.
type Host struct {
	Speed       float64
	MemoryBytes int64
}

// Hosts are those of every rank.
func (c Cluster) Hosts() []Host {
	var out []Host
	for _, p := range c.places() {
		out = append(out, p.host)
	}
	return out
}

// places are all GPUs, in the order of the file: their ranks.
func (c Cluster) places() []place {
	var out []place
	node := 0
	for _, n := range c.Nodes {
		host := Host{Speed: n.HostGBPerS * 1e9 / 1e3}
		if n.HostMemoryBytes > 0 {
			host.MemoryBytes = max(1, n.HostMemoryBytes/int64(n.gpus()))
		}
		for range n.Count {
			for _, g := range n.GPUs {
				for range g.Count {
					out = append(out, place{g.GPU, g.MemoryBytes, node, n.Name, host})
				}
			}
			node++
		}
	}
	return out
}

// Links is where the GPUs are and how fast they reach each other, in bytes per
// millisecond.
type Links struct {
	NodeOf  []int
	Inside  []float64
	Between float64
}

// Links of the cluster.
func (c Cluster) Links() Links {
	l := Links{Between: c.BetweenGbitPerS * 1e9 / 8 / 1e3}
	for _, p := range c.places() {
		l.NodeOf = append(l.NodeOf, p.node)
	}
	for _, n := range c.Nodes {
		for range n.Count {
			l.Inside = append(l.Inside, n.InsideGBPerS*1e9/1e3)
		}
	}
	return l
}

// What one step of a ring takes before the first byte arrives.
const (
	hopInsideMs  = 0.005
	hopBetweenMs = 0.015
)

// gatherMs is what a ring through all GPUs takes to gather so many bytes: its
// slowest link sets the pace. Reducing takes as long.
func (c Cluster) gatherMs(bytes float64) float64 {
	gpus, nodes, slowest := 0, 0, 0.0
	take := func(v float64) {
		if v > 0 && (slowest == 0 || v < slowest) {
			slowest = v
		}
	}
	l := c.Links()
	for _, n := range c.Nodes {
		gpus, nodes = gpus+n.Count*n.gpus(), nodes+n.Count
	}
	for _, v := range l.Inside {
		take(v)
	}
	if nodes > 1 {
		take(l.Between)
	}
	if gpus < 2 || slowest == 0 {
		return 0
	}
	latency := hopInsideMs * float64(gpus-nodes)
	if nodes > 1 {
		latency += hopBetweenMs * float64(nodes)
	}
	return bytes*float64(gpus-1)/float64(gpus)/slowest + latency
}
