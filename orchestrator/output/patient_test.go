package output

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestPatient(t *testing.T) {
	t.Run("two streams keep their order, and all of it is passed on", func(t *testing.T) {
		var all bytes.Buffer
		p := NewPatient(io.Discard, time.Minute)
		out, err := p.Writer(&all), p.Writer(&all)
		var want strings.Builder
		for i := range 1000 {
			to := out
			if i%3 == 0 {
				to = err
			}
			line := fmt.Sprintf("line %d\n", i)
			want.WriteString(line)
			if n, failed := io.WriteString(to, line); n != len(line) || failed != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(line), failed)
			}
		}
		p.Close(time.Minute)
		if all.String() != want.String() {
			t.Errorf("got %d bytes, want %d", all.Len(), want.Len())
		}
	})
	t.Run("a stream that takes nothing holds nobody up for longer than the patience", func(t *testing.T) {
		reader, writer := io.Pipe()
		var notices bytes.Buffer
		p := NewPatient(&notices, 20*time.Millisecond)
		stuck := p.Writer(writer)
		began := time.Now()
		for range 5 * waiting { // each would wait, were it not for the first that did
			_, _ = io.WriteString(stuck, "0123456789")
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("writing took %v", took)
		}
		dropped := p.dropped.Load()
		if dropped < 3*waiting*10 {
			t.Fatalf("%d bytes were dropped", dropped)
		}
		read := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, reader)
			read <- n
		}()
		p.Close(time.Minute)
		_ = writer.Close()
		if n := <-read; n+dropped != 5*waiting*10 {
			t.Errorf("%d bytes were read and %d dropped of %d", n, dropped, 5*waiting*10)
		}
		if want := fmt.Sprintf("%d bytes are not shown", dropped); !strings.Contains(notices.String(), want) {
			t.Errorf("notice %q lacks %q", notices.String(), want)
		}
	})
	t.Run("Close gives a stream up that takes nothing", func(t *testing.T) {
		_, writer := io.Pipe()
		p := NewPatient(io.Discard, time.Millisecond)
		_, _ = io.WriteString(p.Writer(writer), "x")
		began := time.Now()
		p.Close(20 * time.Millisecond)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("closing took %v", took)
		}
		_ = writer.Close()
	})
}
