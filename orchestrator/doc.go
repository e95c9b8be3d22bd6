// Package orchestrator takes a run from its first question to its last line: which
// Python, which devices, what the model costs on them, which plan; then it launches,
// watches, stops, and says what happened.
//
//	preparing ─▶ profiling ─▶ planning ─▶ starting ─▶ training ─▶ done
//	    │            │          ▲ │        ▲  │           ├─────▶ failed
//	    │            │          │ └──┐     │  │           │
//	    │            │          └── restarting ◀──────────┤
//	    └────────────┴────────────┴───────────┴───────────┴─────▶ stopped
//
// (failed can follow every state but the last three; comparing, the first steps under the
// even split, comes before starting when asked for.) One folder holds all that a run
// leaves: see rundir. The parts that touch the system stand in packages of their own:
//
//	supervise  a process tree that cannot outlive us
//	events     what the workers say
//	output     what the ranks print
//	launch     arguments and environment, pure
//	rundir     the state folder
//	show       tables and sentences, pure
//
// It imports profiler, solver, pyshim and templates.
package orchestrator
