package rundir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What cannot be written aside is written into the reserved room and takes its name from there.
func TestTheEndOfARunTakesTheReservedRoom(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.New("train.py", now())
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 250) // no name for a file aside is left
	if err := r.WriteAtLast(name, []byte("lost")); err == nil {
		t.Fatal("it can be written without the reserved room: this test says nothing")
	}
	if err := r.Reserve(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(r.Path(reserveFile)); err != nil || info.Size() != reserveBytes {
		t.Fatalf("%v, %v", info, err)
	}
	if err := r.WriteAtLast(name, []byte("how it ended")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(r.Path(name)); err != nil || string(data) != "how it ended" {
		t.Errorf("%q, %v", data, err)
	}
	if err := r.Reserve(); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteAtLast("status.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.Path(reserveFile)); err != nil {
		t.Errorf("the room was taken where it was not needed: %v", err)
	}
	r.Unlock()
	if left, _ := filepath.Glob(r.Path(".reserve*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
