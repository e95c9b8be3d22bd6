package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind says what an event is about.
type Kind string

// Kinds that workers send.
const (
	Hello      Kind = "hello"
	Start      Kind = "start"
	Step       Kind = "step"
	Phase      Kind = "phase"
	Profile    Kind = "profile"
	Checkpoint Kind = "checkpoint" // phase: saving | saved | failed | loaded | can-save | removed
	Resume     Kind = "resume"     // the script goes on after step
	Heartbeat  Kind = "heartbeat"  // where the rank is; not kept
	Stacks     Kind = "stacks"     // the rank has written its stacks to path
	Error      Kind = "error"
	Exit       Kind = "exit"
)

// Kinds that the supervisor adds.
const (
	Gone      Kind = "gone"      // the stream of a rank has ended
	Malformed Kind = "malformed" // a line that is no event
	Launch    Kind = "launch"    // an attempt was started
	PlanMade  Kind = "plan"
	State     Kind = "state" // the run went into another state
	Restart   Kind = "restart"
	Straggler Kind = "straggler"
	Hardware  Kind = "hardware" // what the machine says about itself
	Ended     Kind = "end"      // the run is over
)

// NoRank is the rank of an event that no rank sent.
const NoRank = -1

// Event is one line. Fields that a kind does not have are zero; fields that this
// version does not know stay in the raw line.
type Event struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	Rank int       `json:"rank"`

	LocalRank int    `json:"local_rank,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Host      string `json:"host,omitempty"`
	Torch     string `json:"torch,omitempty"`
	Device    string `json:"device,omitempty"`
	WorldSize int    `json:"world_size,omitempty"`

	Step            int      `json:"step,omitempty"`
	Loss            *float64 `json:"loss,omitempty"` // mean over the rank's samples
	Samples         int      `json:"samples,omitempty"`
	StepMs          float64  `json:"step_ms,omitempty"`
	ComputeMs       float64  `json:"compute_ms,omitempty"`
	WaitMs          float64  `json:"wait_ms,omitempty"`
	PeakMemoryBytes int64    `json:"peak_memory_bytes,omitempty"`

	Phase  string `json:"phase,omitempty"`
	Detail string `json:"detail,omitempty"`
	Path   string `json:"path,omitempty"`

	// Unit and Collective are where a rank is: in which unit, and for what it waits.
	// Moves grows whenever that changes.
	Unit       string `json:"unit,omitempty"`
	Collective string `json:"collective,omitempty"`
	Moves      int64  `json:"moves,omitempty"`
	// CPUMs is the processor time of the rank so far.
	CPUMs float64 `json:"cpu_ms,omitempty"`

	// Files are those of a checkpoint, with their sizes.
	Files map[string]int64 `json:"files,omitempty"`
	// Placed says that a checkpoint was written aside and got its name when it was whole.
	Placed bool `json:"placed,omitempty"`
	// OutOfMemory marks an error for want of memory on the device; NeededBytes is what
	// the rank would have held at once, 0 when it is not known.
	OutOfMemory bool  `json:"out_of_memory,omitempty"`
	NeededBytes int64 `json:"needed_bytes,omitempty"`
	// Cause is the class of what ended an attempt.
	Cause string `json:"cause,omitempty"`

	Exception string `json:"exception,omitempty"`
	Message   string `json:"message,omitempty"`
	UserFrame string `json:"user_frame,omitempty"`
	Traceback string `json:"traceback,omitempty"`
	Code      *int   `json:"code,omitempty"`

	// Machine is what the machine says, in an event about it.
	Machine any `json:"machine,omitempty"`

	// Raw is the line as it came, without its newline; empty for an event of the
	// supervisor's own.
	Raw []byte `json:"-"`
}

// shownOfMalformed is how many bytes of a bad line a message shows.
const shownOfMalformed = 200

// parse reads one line. What is wrong with it is told in a "malformed" event.
func parse(line []byte, rank int, now time.Time) Event {
	line = bytes.TrimSpace(line)
	var e Event
	err := json.Unmarshal(line, &e)
	if err == nil && e.Kind == "" {
		err = errors.New(`no "kind"`)
	}
	if err == nil && rank != NoRank && e.Rank != rank {
		err = fmt.Errorf("rank %d on the stream of rank %d", e.Rank, rank)
	}
	if err != nil {
		shown := line
		if len(shown) > shownOfMalformed {
			shown = shown[:shownOfMalformed]
		}
		return Event{Time: now, Kind: Malformed, Rank: rank,
			Message: fmt.Sprintf("not an event: %v", err), Detail: fmt.Sprintf("%q", shown)}
	}
	if e.Time.IsZero() {
		e.Time = now
	}
	e.Raw = bytes.Clone(line)
	return e
}

// line is the event as it is kept: what the worker sent, or our own fields.
func (e Event) line() ([]byte, error) {
	if len(e.Raw) > 0 {
		return append(bytes.Clone(e.Raw), '\n'), nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return append(data, '\n'), nil
}
