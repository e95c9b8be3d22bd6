package profiler

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReadInput(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("file"), []byte("content"), 0o644))
	must(os.Symlink("file", at("link")))
	must(os.WriteFile(at("huge"), nil, 0o644))
	must(os.Truncate(at("huge"), 1<<40))
	must(syscall.Mkfifo(at("pipe"), 0o600))
	socket, err := net.Listen("unix", at("socket"))
	must(err)
	defer socket.Close()
	for name, says := range map[string]string{
		"file": "", "link": "", "pipe": "is a pipe", "socket": "is a socket", ".": "is a folder", "huge": "more than 100 bytes", "none": "no such file",
	} {
		began := time.Now()
		// The pipe has no writer; a short patience stands for the usual one.
		for _, patience := range []time.Duration{0, 50 * time.Millisecond} {
			data, err := readInput(at(name), 100, patience)
			if (err == nil) != (says == "") || (err == nil && string(data) != "content") || (err != nil && !strings.Contains(err.Error(), says)) {
				t.Errorf("%s: %q, %v", name, data, err)
			}
			if name == "none" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v", err)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	if _, err := ReadFile(os.DevNull, 100); err == nil || !strings.Contains(err.Error(), "is a device") {
		t.Errorf("error %v", err)
	}
}

// What another command writes can be read, also when that begins later; what never ends cannot.
func TestReadInputFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
			t.Error(err)
		}
	}()
	if data, err := ReadInput(path, 100); err != nil || string(data) != "content" {
		t.Errorf("%q, %v", data, err)
	}
	idle, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := readInput(path, 100, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "nobody wrote all of it") {
		t.Errorf("a writer that does not end: %v", err)
	}
}
