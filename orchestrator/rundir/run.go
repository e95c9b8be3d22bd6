package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Run is the folder of one run.
type Run struct {
	ID  string
	Dir string

	lock *os.File // held by the owner
}

// Owner is who runs a run.
type Owner struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
	Host       string `json:"host"`
	// Started is when the run began, TakenUp when this owner has taken it up again.
	Started time.Time `json:"started"`
	TakenUp time.Time `json:"taken_up,omitzero"`
	Script  string    `json:"script,omitempty"`
	Args    []string  `json:"args,omitempty"`
	// TempDir holds sockets and pipes while the run lasts.
	TempDir string `json:"temp_dir,omitempty"`
}

// Names of the files of a run.
const (
	PlanFile     = "plan.json"
	EvenPlanFile = "even-plan.json" // what the plan was compared with
	ProfileFile  = "profile.json"
	DevicesFile  = "devices.json"
	ShimFile     = "shim.py"
	PackageDir   = "pyshim"
	EventsFile   = "events.jsonl"
	LogsDir      = "logs"
	MeasureDir   = "measure"
	Checkpoints  = "checkpoints"
	StatusFile   = "status.json"
	ReportJSON   = "report.json"
	ReportHTML   = "report.html"
	RestartsFile = "restarts.json"
	MachineFile  = "machine.json" // what the machine said last
	SpecFile     = "spec.json"
	OwnerFile    = "run.json"
	lockFile     = ".lock"
)

// ErrLocked is a run that another process owns.
var ErrLocked = errors.New("the run belongs to a living process")

// Path is the path of one of the run's files.
func (r *Run) Path(parts ...string) string {
	return filepath.Join(append([]string{r.Dir}, parts...)...)
}

// FirstLog is where what a rank printed begins to be worth reading: in the log of the training,
// or in that of the measurement before it if the run got no further.
func (r *Run) FirstLog(rank int) string {
	measured := r.Path(LogsDir, ProfileLogs+fmt.Sprintf("rank-%d.log", rank))
	if _, err := os.Stat(r.LogPath(rank)); err != nil {
		if _, err := os.Stat(measured); err == nil {
			return measured
		}
	}
	return r.LogPath(rank)
}

// ProfileLogs begins the names of the logs of a measurement.
const ProfileLogs = "profile-"

// LogPath is the log of a rank's training.
func (r *Run) LogPath(rank int) string { return r.Path(LogsDir, fmt.Sprintf("rank-%d.log", rank)) }

// prepare fills a new folder and locks it.
func (r *Run) prepare() error {
	if err := r.MakeFolders(); err != nil {
		return err
	}
	return r.Lock()
}

// MakeFolders makes the folders of the run that are not there.
func (r *Run) MakeFolders() error {
	for _, dir := range []string{LogsDir, MeasureDir, Checkpoints} {
		if err := os.MkdirAll(r.Path(dir), 0o755); err != nil {
			return fmt.Errorf("%w: %w", ErrNotWritable, err)
		}
	}
	return nil
}

// Lock makes this process the owner until Unlock or its end.
func (r *Run) Lock() error {
	f, err := os.OpenFile(r.Path(lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("lock run: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			owner, _ := r.Owner()
			since := owner.Started
			if !owner.TakenUp.IsZero() {
				since = owner.TakenUp
			}
			return fmt.Errorf("%w: %s is run by pid %d on %s since %s", ErrLocked, r.ID, owner.PID, owner.Host, since.Format(time.RFC3339))
		}
		return fmt.Errorf("lock run: %w", err)
	}
	r.lock = f
	return nil
}

// Unlock gives the run up, and the room that was reserved for its end.
func (r *Run) Unlock() {
	if r.lock != nil {
		r.release()
		_ = r.lock.Close()
		r.lock = nil
	}
}

// SetOwner writes who runs the run.
func (r *Run) SetOwner(o Owner) error { return WriteJSON(r.Path(OwnerFile), o) }

// Owner reads who runs, or ran, the run.
func (r *Run) Owner() (Owner, error) {
	var o Owner
	return o, r.ReadJSON(OwnerFile, &o)
}

// Running says whether the owner still holds the run.
func (r *Run) Running() bool {
	f, err := os.OpenFile(r.Path(lockFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return errors.Is(err, unix.EWOULDBLOCK)
}

// mostBytes is more than any of a run's JSON files has.
const mostBytes = 1 << 28

// ReadJSON reads one of the run's files.
func (r *Run) ReadJSON(name string, into any) error {
	if info, err := os.Stat(r.Path(name)); err == nil && (!info.Mode().IsRegular() || info.Size() > mostBytes) {
		return fmt.Errorf("read %s: it is not a file, or has more than %d bytes", r.Path(name), mostBytes)
	}
	data, err := os.ReadFile(r.Path(name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("run %s has no %s: %w", r.ID, name, fs.ErrNotExist)
		}
		return fmt.Errorf("read run: %w", err)
	}
	err = json.Unmarshal(data, into)
	if err == nil && bytes.Equal(bytes.TrimSpace(data), []byte("null")) { // which is no error for Unmarshal
		err = errors.New("it holds null and nothing else")
	}
	if err != nil {
		return fmt.Errorf("read %s: it is damaged: %w", r.Path(name), err)
	}
	return nil
}
