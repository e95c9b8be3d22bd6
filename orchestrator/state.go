package orchestrator

import (
	"fmt"
	"slices"
)

// State is where a run stands.
type State string

// The states of a run; the table of moves is below and drawn in doc.go.
const (
	Preparing State = "preparing"
	Profiling State = "profiling"
	Planning  State = "planning"
	Comparing State = "comparing"
	Starting  State = "starting"
	Training  State = "training"
	// Restarting is between two attempts.
	Restarting State = "restarting"
	Done       State = "done"
	Failed     State = "failed"
	Stopped    State = "stopped"
)

// moves lists the states that may follow.
var moves = map[State][]State{
	Preparing:  {Profiling, Planning, Comparing, Starting, Failed, Stopped},
	Profiling:  {Planning, Done, Failed, Stopped},
	Planning:   {Comparing, Starting, Done, Failed, Stopped},
	Comparing:  {Starting, Failed, Stopped},
	Starting:   {Training, Restarting, Done, Failed, Stopped},
	Training:   {Restarting, Done, Failed, Stopped},
	Restarting: {Planning, Starting, Failed, Stopped},
}

// next checks a move.
func (s State) next(to State) error {
	if !slices.Contains(moves[s], to) {
		return fmt.Errorf("a run cannot go from %s to %s", s, to)
	}
	return nil
}

// Over says that nothing follows.
func (s State) Over() bool { return len(moves[s]) == 0 }
