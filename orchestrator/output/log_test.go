package output

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// User case 76: a full disk costs lines, which are counted, named at once, and said in the log when
// there is room again.
func TestUserCase76WhatAFullDiskCostsIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank-0.log")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	var heard []error
	l.cut = func(why error) { heard = append(heard, why) }
	l.write([]byte("one\ntwo\n"))
	l.write([]byte("three\n"))
	if len(heard) != 1 || !errors.Is(heard[0], unix.ENOSPC) {
		t.Errorf("heard %v", heard)
	}
	room := filepath.Join(t.TempDir(), "room")
	_ = l.file.Close()
	if l.file, err = os.Create(room); err != nil {
		t.Fatal(err)
	}
	l.write([]byte("four\n"))
	l.close()
	got, err := os.ReadFile(room)
	if want := "\n[lines missing here: 3; no space left on device]\nfour\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	lines, why := (&Ranks{logs: []*Log{{}, l}}).Missing()
	if lines != 3 || !errors.Is(why, unix.ENOSPC) {
		t.Errorf("missing: %d, %v", lines, why)
	}
}
