package events

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func fixedNow() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func listen(t *testing.T) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "ev")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Listen(dir, fixedNow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		go func() {
			for range s.Events() {
				continue
			}
		}()
		s.Close()
		_ = os.RemoveAll(dir)
	})
	return s
}

func dial(t *testing.T, s *Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func next(t *testing.T, s *Server) Event {
	t.Helper()
	select {
	case e := <-s.Events():
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
		return Event{}
	}
}

const helloLine = `{"time":"2026-01-02T03:04:05.5Z","kind":"hello","rank":1,"local_rank":1,"pid":42}` + "\n"

func TestStreamOfOneRank(t *testing.T) {
	s := listen(t)
	conn := dial(t, s, helloLine+
		`{"time":"2026-01-02T03:04:06Z","kind":"step","rank":1,"step":3,"loss":null,"samples":8,"step_ms":1.5,"new":true}`+"\n")
	if e := next(t, s); e.Kind != Hello || e.PID != 42 || e.Rank != 1 {
		t.Errorf("got %+v", e)
	}
	e := next(t, s)
	if e.Kind != Step || e.Step != 3 || e.Loss != nil || e.Samples != 8 || e.StepMs != 1.5 {
		t.Errorf("got %+v", e)
	}
	if !bytes.Contains(e.Raw, []byte(`"new":true`)) {
		t.Error("an unknown field is lost")
	}
	_ = conn.Close()
	if e := next(t, s); e.Kind != Gone || e.Rank != 1 {
		t.Errorf("got %+v", e)
	}
}

func TestMalformedLinesAreNamed(t *testing.T) {
	cases := map[string]string{
		"no JSON":           "Traceback (most recent call last):\n",
		"not an object":     "[1,2]\n",
		"without a kind":    `{"rank":1}` + "\n",
		"of another rank":   `{"kind":"step","rank":0}` + "\n",
		"of a wrong type":   `{"kind":"step","rank":1,"step":"three"}` + "\n",
		"cut at the end":    `{"kind":"st`,
		"long and no event": strings.Repeat("x", 3<<20) + "\n",
	}
	for name, line := range cases {
		t.Run(name, func(t *testing.T) {
			s := listen(t)
			conn := dial(t, s, helloLine+line)
			if cw, ok := conn.(*net.UnixConn); ok {
				_ = cw.CloseWrite()
			}
			next(t, s)
			e := next(t, s)
			if e.Kind != Malformed || e.Rank != 1 || len(e.Detail) > 300 || e.Message == "" {
				t.Errorf("got %.300v", e)
			}
			if e := next(t, s); e.Kind != Gone {
				t.Errorf("the stream did not go on: %+v", e)
			}
			_ = conn.Close()
		})
	}
}

func TestBroadcast(t *testing.T) {
	s := listen(t)
	first, second := dial(t, s, helloLine), dial(t, s, strings.Replace(helloLine, `"rank":1`, `"rank":0`, 1))
	next(t, s)
	next(t, s)
	if n := s.Broadcast(Stop()); n != 2 {
		t.Fatalf("%d workers have it", n)
	}
	for _, conn := range []net.Conn{first, second} {
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || line != `{"kind":"stop"}`+"\n" {
			t.Errorf("got %q, %v", line, err)
		}
		_ = conn.Close()
	}
}

func TestTheFolderIsPrivateAndTheAddressShort(t *testing.T) {
	s := listen(t)
	info, err := os.Stat(filepath.Dir(s.Path()))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(strings.Repeat("/long", 30), fixedNow); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("error %v", err)
	}
}

func TestJournalKeepsLinesAsTheyCame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	var also bytes.Buffer
	j, err := OpenJournal(path, &also)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Write(parse([]byte(helloLine), NoRank, fixedNow())); err != nil {
		t.Fatal(err)
	}
	if err := j.Write(Event{Time: fixedNow(), Kind: Launch, Rank: NoRank, Message: "attempt 1"}); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	want := helloLine + `{"time":"2026-01-02T03:04:05Z","kind":"launch","rank":-1,"message":"attempt 1"}` + "\n"
	data, _ := os.ReadFile(path)
	if string(data) != want || also.String() != want {
		t.Errorf("got\n%s\nwant\n%s", data, want)
	}
}
