// Package supervise owns a tree of processes from its first one to its last.
//
// The launcher of a training job starts every worker in a session of its own,
// and workers start helpers of theirs, so neither a signal to a process group
// nor the death of the launcher ends them. This package therefore puts a small
// process of its own, the guard, between the supervisor and the launcher:
//
//	supervisor ──pipe──▶ guard ──▶ launcher ──▶ worker (own session) ──▶ helper
//	 sub-reaper          sub-reaper, own session
//
// The guard is a child sub-reaper, so whatever loses its parent below it becomes
// its child and never leaves its tree. When its pipe to the supervisor ends, for
// any reason including SIGKILL, or when the launcher ends, the guard kills all
// that is left below it and goes. The supervisor is a sub-reaper too, so that
// even a guard that was killed leaves nothing behind.
//
// Processes are told apart by pid and start time, never by name. Every wait is
// bounded; a process that cannot be killed (state D) is named and left.
//
// The package imports nothing else of the project and works on Linux only.
package supervise
