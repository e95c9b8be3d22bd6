package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// User case 40: ids are unique, also when runs start in the same second.
func TestUserCase40RunsOfTheSameSecond(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const runs = 20
	var wg sync.WaitGroup
	ids := make(chan string, runs)
	for range runs {
		wg.Go(func() {
			r, err := s.New("train.py", now())
			if err != nil {
				t.Error(err)
				return
			}
			ids <- r.ID
			r.Unlock()
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		if seen[id] || !strings.HasPrefix(id, "20260102-030405-train") {
			t.Errorf("id %s", id)
		}
		seen[id] = true
	}
	if newest, err := s.Find("latest"); err != nil || !seen[newest.ID] {
		t.Errorf("latest: %v, %v", newest, err)
	}
	if all, err := s.List(); err != nil || len(all) != runs {
		t.Errorf("%d runs listed, %v", len(all), err)
	}
}

func TestFind(t *testing.T) {
	s, _ := Open(t.TempDir())
	if _, err := s.Find(""); !errors.Is(err, ErrNoRun) {
		t.Errorf("error %v", err)
	}
	a, _ := s.New("a.py", now())
	b, _ := s.New("b.py", now().Add(time.Hour))
	cases := map[string]string{"": b.ID, "latest": b.ID, a.ID: a.ID, "20260102-03": a.ID, "2026": "", "x": ""}
	for id, want := range cases {
		got, err := s.Find(id)
		if (want == "") != errors.Is(err, ErrNoRun) || (want != "" && got.ID != want) {
			t.Errorf("find %q: %v, %v", id, got, err)
		}
	}
}

// The link may be lost, by a copy of the folder for one, or name a run that was removed.
func TestTheNewestRunIsFoundWithoutItsLink(t *testing.T) {
	s, _ := Open(t.TempDir())
	a, _ := s.New("a.py", now())
	b, _ := s.New("b.py", now().Add(time.Hour))
	link := filepath.Join(s.Runs(), "latest")
	for name, put := range map[string]func() error{
		"none":     func() error { return nil },
		"dangling": func() error { return os.Symlink("20200101-000000-gone", link) },
		"a file":   func() error { return os.WriteFile(link, nil, 0o644) },
		"a folder": func() error { return os.Mkdir(link, 0o755) },
	} {
		_ = os.Remove(link)
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Find(""); err != nil || got.ID != b.ID {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	_ = os.Remove(link)
	if err := os.MkdirAll(filepath.Join(link, "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.Runs(), "notes"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := s.New("c.py", now().Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Find(""); err != nil || got.ID != c.ID {
		t.Errorf("a run beside what is no link: %v, %v", got, err)
	}
	_ = os.RemoveAll(link)
	if err := os.Symlink(filepath.Join(s.Runs(), a.ID), link); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Find("latest"); err != nil || got.ID != a.ID {
		t.Errorf("a link with a whole path: %v, %v", got, err)
	}
}

func TestNotWritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(file)
	if !errors.Is(err, ErrNotWritable) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("error %v", err)
	}
}

func TestLockNamesItsOwner(t *testing.T) {
	s, _ := Open(t.TempDir())
	r, err := s.New("mein Modell (v2) $x 'é.py", now())
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(r.ID, " $'()") {
		t.Errorf("id %q", r.ID)
	}
	if err := r.SetOwner(Owner{PID: 4711, Host: "here", Started: now()}); err != nil {
		t.Fatal(err)
	}
	again, _ := s.Find(r.ID)
	if !again.Running() {
		t.Error("not seen as running")
	}
	if err := again.Lock(); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "4711") {
		t.Errorf("error %v", err)
	}
	r.Unlock()
	if again.Running() {
		t.Error("seen as running after its end")
	}
}

func TestWriteFileLeavesNothingAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plan.json")
	for _, text := range []string{"one", "two"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	data, _ := os.ReadFile(path)
	entries, _ := os.ReadDir(dir)
	if string(data) != "two" || len(entries) != 1 {
		t.Errorf("content %q, %d files", data, len(entries))
	}
	if err := WriteFile(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("no error for a folder that is not there")
	}
}
