// Package hostwatch watches what a run runs on: memory of the host and of its control group,
// disks, network and GPUs. Whatever does not answer is left behind with its last numbers,
// marked as stale; nothing here can hold a run up.
package hostwatch
