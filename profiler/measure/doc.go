// Package measure turns what the ranks of a profiling run measured into a
// profile: it reads the measurement files (one a rank), fits the line beyond
// the last measured microbatch, compares devices that ought to be alike, and
// merges.
//
// Rules of the merge: what a unit costs is each device's own; what the group
// does together (collectives, ragged factor, fixed time, overhead of a
// microbatch) is the largest value of any rank, since all wait for the slowest.
// Ranks that measured different models cannot be merged.
package measure
