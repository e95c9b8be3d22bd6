package orchestrator

import (
	"testing"
	"time"
)

// A look that takes long says what it is at and, once it is known, how far it is.
func TestALongLookAtCheckpointsSaysHowFarItIs(t *testing.T) {
	lines, said := make(chan []byte), make(chan string)
	tool := CheckpointTool{Tell: func(text string) { said <- text }, tellAfter: time.Millisecond}
	at := "reading checkpoint a"
	ended := make(chan int)
	go func() {
		got, err := tool.follow(lines, func() string { return at }, func(CheckpointReport) { at = "reading checkpoint b" })
		if err != nil {
			t.Error(err)
		}
		ended <- got
	}()
	mustSay := func(want string) {
		t.Helper()
		for deadline := time.After(20 * time.Second); ; {
			select {
			case text := <-said:
				if text == want {
					return
				}
			case <-deadline:
				t.Fatalf("%q was not said", want)
			}
		}
	}
	send := func(line string) {
		for {
			select {
			case lines <- []byte(line):
				return
			case <-said:
			}
		}
	}
	mustSay("still reading checkpoint a")
	send(`{"done": 1073741824, "of": 4294967296}`)
	mustSay("still reading checkpoint a: 1.0 GiB of 4.0 GiB (25 %)")
	send(`{"report": {"tensors": 3}}`)
	mustSay("still reading checkpoint b")
	go func() { // until the channel is closed
		for range said {
			continue
		}
	}()
	close(lines)
	if got := <-ended; got != 1 {
		t.Errorf("%d reports", got)
	}
}
