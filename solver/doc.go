// Package solver turns a problem (what the devices can do, what the model
// needs) into a plan (how many samples, which microbatches, how much training
// state and which activation policy every rank gets), and predicts what a plan
// costs.
//
// It owns the planner's objective, the search for its exact minimum, the Plan
// v1 document and the words that explain a plan. It is pure: no input or
// output, no clock, no goroutine, no randomness, and nothing of this module is
// imported. The same problem gives the same plan, byte for byte.
//
// docs/planner.md states the objective, the algorithm, its complexity and why
// it is exact.
package solver
