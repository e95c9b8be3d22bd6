package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// DefaultState is the state folder's name in the working folder.
const DefaultState = ".cephalo"

// ErrNoRun is a run that is not there.
var ErrNoRun = errors.New("no such run")

// ErrNotWritable is a state folder that cannot be used.
var ErrNotWritable = errors.New("the state folder cannot be written")

// Store is a state folder.
type Store struct{ root string }

// Open prepares a state folder, making it if need be.
func Open(root string) (Store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Store{}, fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	s := Store{root}
	for _, dir := range []string{s.Runs(), s.Profiles()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Store{}, fmt.Errorf("%w: %w; choose another one with --state-dir", ErrNotWritable, err)
		}
		probe, err := os.CreateTemp(dir, ".probe-*")
		if err != nil {
			return Store{}, fmt.Errorf("%w: %w; choose another one with --state-dir", ErrNotWritable, err)
		}
		_ = probe.Close()
		_ = os.Remove(probe.Name())
	}
	return s, nil
}

// At names a state folder for reading only; it need not be there.
func At(root string) Store {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	return Store{root}
}

// Runs is the folder of runs.
func (s Store) Runs() string { return filepath.Join(s.root, "runs") }

// Profiles is the folder of profiles.
func (s Store) Profiles() string { return filepath.Join(s.root, "profiles") }

// latest is the link to the newest run.
const latest = "latest"

// idTime begins the id of a run.
const idTime = "20060102-150405"

// New makes the folder of a new run. Its id is the time and a name, and differs
// from every other one, also when two runs start in the same moment.
func (s Store) New(name string, now time.Time) (*Run, error) {
	base := now.UTC().Format(idTime) + "-" + safeName(name)
	for n := 1; ; n++ {
		id := base
		if n > 1 {
			id = fmt.Sprintf("%s-%d", base, n)
		}
		dir := filepath.Join(s.Runs(), id)
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotWritable, err)
		}
		r := &Run{ID: id, Dir: dir}
		if err := r.prepare(); err != nil {
			return nil, err
		}
		s.point(id)
		return r, nil
	}
}

// point makes latest name a run. The link is made aside and renamed over the old one, so that
// it is always there. Where that cannot be, as on a disk without links, none is left that names an
// older run: the newest one is found by its id then.
func (s Store) point(id string) {
	link := filepath.Join(s.Runs(), latest)
	aside := filepath.Join(s.Runs(), "."+latest+"-"+id)
	_ = os.Remove(aside)
	err := os.Symlink(id, aside)
	if err == nil {
		err = os.Rename(aside, link)
	}
	if err != nil {
		_ = os.Remove(aside)
		_ = os.Remove(link)
	}
}

// Find opens a run by its id, an unambiguous beginning of it, or as the newest
// one: "" or "latest".
func (s Store) Find(id string) (*Run, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	if id == "" || id == latest {
		return s.newest(all)
	}
	var found []*Run
	for _, r := range all {
		if r.ID == id {
			return r, nil
		}
		if strings.HasPrefix(r.ID, id) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w: %q in %s", ErrNoRun, id, s.Runs())
	case 1:
		return found[0], nil
	default:
		return nil, fmt.Errorf("%w: %q is the beginning of %d runs in %s", ErrNoRun, id, len(found), s.Runs())
	}
}

// newest is the run that latest names. Where that link is gone, or names no run, it is the last
// one by its id, which begins with the time of its start.
func (s Store) newest(all []*Run) (*Run, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there is none yet in %s", ErrNoRun, s.Runs())
	}
	target, _ := os.Readlink(filepath.Join(s.Runs(), latest))
	for _, r := range all {
		if r.ID == filepath.Base(target) {
			return r, nil
		}
	}
	for _, r := range slices.Backward(all) {
		if _, err := time.Parse(idTime, r.ID[:min(len(idTime), len(r.ID))]); err == nil {
			return r, nil
		}
	}
	return all[len(all)-1], nil
}

// List lists the runs, oldest first.
func (s Store) List() ([]*Run, error) {
	entries, err := os.ReadDir(s.Runs())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%w: %s lies in a file, and must be in a folder: give another --state-dir", ErrNoRun, s.Runs())
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var runs []*Run
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != latest { // a copy has a folder of that name
			runs = append(runs, &Run{ID: e.Name(), Dir: filepath.Join(s.Runs(), e.Name())})
		}
	}
	slices.SortStableFunc(runs, func(a, b *Run) int { return strings.Compare(a.ID, b.ID) })
	return runs, nil
}

// safeName keeps what is plain in every shell and file system.
func safeName(name string) string {
	name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	name = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_]+`).ReplaceAllString(name, "-"), "-")
	if name == "" {
		return "run"
	}
	return name[:min(len(name), 40)]
}
