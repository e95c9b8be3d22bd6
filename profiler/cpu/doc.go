// Package cpu lists the host as one device: its processor, and the memory that
// this process may really use. A container's limit counts, not the host's
// size: the budget is the least of MemAvailable, what every cgroup above us
// has left (version 2, every parent), and the version 1 limits.
package cpu
