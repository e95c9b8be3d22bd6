// Package estimate makes profiles without measuring: from a cluster file
// (nodes, GPUs by name, links), and a model file or the profile of a model
// that was measured on other devices.
//
// It owns the catalogue of GPUs, the two file formats and the cost model behind
// them (docs/simulate.md). What was measured wins over what is in the
// catalogue: costs of a GPU that a profile holds are taken as they are, others
// are scaled from them by the ratio of the catalogue's speeds.
package estimate
