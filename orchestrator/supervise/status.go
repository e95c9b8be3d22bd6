package supervise

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Status says how one process ended.
type Status struct {
	Code   int `json:"code"`   // exit code, when it ended by itself
	Signal int `json:"signal"` // number of the signal that ended it, else 0
}

// Success says that the process ended by itself with code 0.
func (s Status) Success() bool { return s.Code == 0 && s.Signal == 0 }

// String says it in words that follow the name of the process.
func (s Status) String() string {
	if s.Signal != 0 {
		return fmt.Sprintf("was ended by signal %d (%s)", s.Signal, unix.SignalName(unix.Signal(s.Signal)))
	}
	return fmt.Sprintf("ended with exit code %d", s.Code)
}

func statusOf(ws unix.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Signal: int(ws.Signal())}
	}
	return Status{Code: ws.ExitStatus()}
}
