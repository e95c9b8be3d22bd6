package orchestrator

import (
	"errors"
	"sync"
	"syscall"
)

// unkept says, once for each cause, that a file of the run's own could not be written. It
// costs what status and reports know, and never the training. Any goroutine may call it.
type unkept struct {
	mu   sync.Mutex
	said map[string]bool
}

func (u *unkept) say(screen *screen, err error) {
	if err == nil {
		return
	}
	cause := err.Error()
	var number syscall.Errno
	if errors.As(err, &number) {
		cause = number.Error()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.said[cause] {
		return
	}
	if u.said == nil {
		u.said = map[string]bool{}
	}
	u.said[cause] = true
	screen.say("note: a file in the run's folder cannot be written: %v; the training goes on, logs and events lack what is not written, and what status, runs and the report say may be old", err)
}
