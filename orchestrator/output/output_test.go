package output

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRanksAreKeptApart(t *testing.T) {
	dir := t.TempDir()
	logPath := func(rank int) string { return filepath.Join(dir, fmt.Sprintf("rank-%d.log", rank)) }
	var stdout, stderr bytes.Buffer
	r, err := Open(Options{Dir: dir, LogPath: logPath, Ranks: 3, Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	const lines = 2000
	var wg sync.WaitGroup
	for rank := range 3 {
		for _, stream := range streams {
			wg.Go(func() {
				f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("rank-%d.%s", rank, stream)), os.O_WRONLY, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for i := range lines {
					fmt.Fprintf(f, "rank %d %s %d\n", rank, stream, i)
				}
			})
		}
	}
	wg.Wait()
	r.Close()
	for rank := range 3 {
		data, _ := os.ReadFile(logPath(rank))
		got := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if len(got) != 2*lines {
			t.Errorf("rank %d has %d lines", rank, len(got))
		}
		next := map[string]int{}
		for _, text := range got {
			var of, n int
			var stream string
			if _, err := fmt.Sscanf(text, "rank %d %s %d", &of, &stream, &n); err != nil || of != rank || n != next[stream] {
				t.Fatalf("rank %d: line %q, %v", rank, text, err)
			}
			next[stream]++
		}
	}
	if n := strings.Count(stdout.String(), "rank 0 out"); n != lines || strings.Contains(stdout.String(), "rank 1") {
		t.Errorf("%d lines on the screen", n)
	}
	if n := strings.Count(stderr.String(), "rank 0 err"); n != lines {
		t.Errorf("%d lines of errors on the screen", n)
	}
	if tail := r.Tail(2); len(tail) != tailLines {
		t.Errorf("%d lines kept", len(tail))
	}
}

// User case 76: a log has a size limit, and its beginning and its end are kept.
func TestUserCase76LogsHaveALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank-0.log")
	l, err := openLog(path, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		l.write([]byte(fmt.Sprintf("line %d\n", i)))
	}
	l.close()
	files, _ := filepath.Glob(path + "*")
	if len(files) != generations+2 {
		t.Errorf("files %v", files)
	}
	var total int64
	for _, f := range files {
		info, _ := os.Stat(f)
		total += info.Size()
	}
	if total > 1000*(generations+2) {
		t.Errorf("%d bytes", total)
	}
	first, _ := os.ReadFile(path + ".first")
	last, _ := os.ReadFile(path)
	if !strings.HasPrefix(string(first), "line 0\n") || !strings.HasSuffix(string(last), "line 9999\n") {
		t.Error("the beginning or the end is lost")
	}
}

func TestTailKeepsTheLastStateOfAProgressBar(t *testing.T) {
	var tl tail
	tl.add([]byte("10%\r50%\r100%\n"))
	tl.add([]byte("plain\n"))
	if got := strings.Join(tl.lines(), "|"); got != "100%|plain" {
		t.Errorf("got %q", got)
	}
}

func TestALogThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(Options{Dir: dir, Ranks: 1, LogPath: func(int) string { return filepath.Join(dir, "none", "x.log") }})
	if err == nil {
		t.Error("no error")
	}
}

// However lines come, the last ones are kept, whole or cut to a bearable width.
func TestTailOfManyAndOfHugeLines(t *testing.T) {
	var tl tail
	for i := range 10_000 {
		tl.add(fmt.Appendf(nil, "line %d\nother %d\n", i, i))
	}
	if got := tl.lines(); len(got) != tailLines || got[tailLines-1] != "other 9999" || got[0] != "line 9975" {
		t.Errorf("got %d lines, %q", len(got), got)
	}
	huge := bytes.Repeat([]byte("x"), 10<<20)
	tl.add(huge)
	tl.add([]byte("\nlast"))
	got := tl.lines()
	if len(got) != tailLines || got[tailLines-1] != "last" || len(got[tailLines-2]) != tailWidth || len(tl.raw) > tailRaw+1 {
		t.Errorf("%d lines, %d bytes, ends with %.20q", len(got), len(tl.raw), got[tailLines-1])
	}
	if got := (&tail{}).lines(); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

// An unfinished line is shown within a second, and is whole in the end.
func TestAnUnfinishedLineIsPassedOn(t *testing.T) {
	s := stream{}
	var got []string
	to := func(text []byte) { got = append(got, string(text)) }
	now := time.Now()
	s.add([]byte("one\ntw"), now, to)
	s.add([]byte("o\nthree\nfo"), now, to)
	s.add([]byte("u"), now, to)
	if want := []string{"one\n", "two\n", "three\n"}; !slices.Equal(got, want) || string(s.rest) != "fou" || !s.since.Equal(now) {
		t.Errorf("got %q and %q", got, s.rest)
	}
	s.flush(to)
	s.add([]byte("r\n"), now, to)
	if strings.Join(got, "") != "one\ntwo\nthree\nfour\n" {
		t.Errorf("got %q", got)
	}
}

// blocked is a screen that takes nothing, as a terminal after Ctrl-S.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) { <-b; return len(p), nil }

func TestAScreenThatTakesNothingDoesNotHoldUpTheEnd(t *testing.T) {
	dir, never := t.TempDir(), make(blocked)
	defer close(never)
	logPath := func(rank int) string { return filepath.Join(dir, fmt.Sprintf("rank-%d.log", rank)) }
	r, err := Open(Options{Dir: dir, LogPath: logPath, Ranks: 1, Stdout: never})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "rank-0.out"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "hello")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.Close()
	if took := time.Since(began); took > closeLimit+giveUpLimit+2*time.Second {
		t.Errorf("took %s", took)
	}
	if data, err := os.ReadFile(logPath(0)); err != nil || string(data) != "hello\n" {
		t.Errorf("the log has %q, %v", data, err)
	}
}

// What rank 0 prints to standard error after a failure waits until somebody says whether it is
// to be seen; standard output and the log do not wait.
func TestStandardErrorIsHeldBack(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	log := filepath.Join(dir, "0.log")
	r, err := Open(Options{Dir: dir, LogPath: func(int) string { return log }, Ranks: 1, Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	r.Hold()
	for name, text := range map[string]string{"out": "a loss\n", "err": "a traceback\n"} {
		if err := os.WriteFile(filepath.Join(dir, "rank-0."+name), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	data, _ := os.ReadFile(log)
	if stdout.String() != "a loss\n" || stderr.Len() > 0 || !strings.Contains(string(data), "a traceback\n") {
		t.Errorf("out %q, err %q, log %q", &stdout, &stderr, data)
	}
	r.ShowHeld()
	if stderr.String() != "a traceback\n" {
		t.Errorf("shown: %q", &stderr)
	}
}
