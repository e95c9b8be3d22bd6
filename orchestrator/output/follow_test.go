package output

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReaderBeginsAtTheLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("y", 200<<10)
	if err := os.WriteFile(path, []byte("one\ntwo\n"+long+"\nfour\nfive"), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[int]string{
		0: "", 1: "> five", 2: "> four\n> five", 3: "> " + long + "\n> four\n> five",
		-1: "> one\n> two\n> " + long + "\n> four\n> five", 99: "> one\n> two\n> " + long + "\n> four\n> five",
	}
	for n, want := range cases {
		var out bytes.Buffer
		if err := (Reader{Path: path, Lines: n, Prefix: "> ", To: &out}).Print(); err != nil || out.String() != want {
			t.Errorf("%d lines: %.60q, %v", n, out.String(), err)
		}
	}
	if err := (Reader{Path: path + "x", Lines: 1}).Print(); err == nil {
		t.Error("no error")
	}
}

func TestFollowGoesOnInTheNewFileAfterARotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path, 40)
	if err != nil {
		t.Fatal(err)
	}
	l.write([]byte("before\n"))
	var out bytes.Buffer
	looks := 0
	over := func() bool {
		looks++
		switch looks {
		case 1:
			l.write([]byte("in the first file\n"))
		case 2:
			l.write([]byte("in the second file, as it is long enough\n"))
		}
		return looks > 2
	}
	if err := (Reader{Path: path, Lines: -1, To: &out}).Follow(context.Background(), over); err != nil {
		t.Fatal(err)
	}
	if want := "before\nin the first file\nin the second file, as it is long enough\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}
