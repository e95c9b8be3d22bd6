package hostwatch

import (
	"context"
	"sync"
	"time"
)

// asked is something that may never answer, such as a disk of a server that is gone. While
// a question is open no other one is put, so that goroutines do not pile up.
type asked[T any] struct {
	mu   sync.Mutex
	last T
	at   time.Time // when it answered last; zero before
	open bool
}

// ask puts the question and waits for its answer up to the limit. It returns the last
// answer, when that came, and whether it is the answer to this question.
func (a *asked[T]) ask(ctx context.Context, limit time.Duration, now func() time.Time, question func(context.Context) (T, bool)) (T, time.Time, bool) {
	a.mu.Lock()
	if a.open {
		defer a.mu.Unlock()
		return a.last, a.at, false
	}
	a.open = true
	a.mu.Unlock()
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	answered := make(chan bool, 1)
	go func() {
		answer, ok := question(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open = false
		if ok {
			a.last, a.at = answer, now()
		}
		answered <- ok
	}()
	fresh := false
	select {
	case fresh = <-answered:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.at, fresh
}
