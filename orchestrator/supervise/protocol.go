package supervise

import (
	"encoding/json"
	"fmt"
	"io"
)

// controlFD is where the guard finds its pipe to the supervisor.
const controlFD = 3

// order is one line from the supervisor to the guard.
type order struct {
	Start  *program `json:"start,omitempty"`
	Signal int      `json:"signal,omitempty"` // for the first process only
	Sweep  bool     `json:"sweep,omitempty"`  // kill everything now
}

// program is what the guard runs.
type program struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// notice is one line from the guard to the supervisor.
type notice struct {
	Started *Process `json:"started,omitempty"`
	Failed  string   `json:"failed,omitempty"`
	Ended   *Status  `json:"ended,omitempty"`
	Swept   *swept   `json:"swept,omitempty"`
}

// swept is the guard's last line.
type swept struct {
	Left []Process `json:"left"`
}

// send writes one line.
func send(w io.Writer, line any) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode control line: %w", err)
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write control line: %w", err)
	}
	return nil
}
