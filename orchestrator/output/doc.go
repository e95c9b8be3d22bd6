// Package output takes what the ranks print: one log file for each rank, whole lines,
// and rank 0 on the screen as well.
//
// Each rank writes to two named pipes of its own, so nothing of one rank can land
// within a line of another, and the launcher's own words stay apart. The last lines of
// every rank are kept for the report of a failure. Log files have a size limit; a disk
// that is full costs log lines, which are counted, and never the run.
//
// It imports supervise, for its line pump.
package output
