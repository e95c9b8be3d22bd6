package orchestrator

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/hostwatch"
	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// Summary is a run as its folder tells it.
type Summary struct {
	ID      string       `json:"id"`
	Dir     string       `json:"dir"`
	State   State        `json:"state"`
	Running bool         `json:"running"`
	Owner   rundir.Owner `json:"owner"`
	Updated time.Time    `json:"updated"`
	Step    *show.Step   `json:"last_step,omitempty"`
	Failure *Failure     `json:"failure,omitempty"`
	Message string       `json:"message,omitempty"`
	// Machine is what the machine said last; nil if nothing.
	Machine *hostwatch.State `json:"machine,omitempty"`
	// Steps that the report counts; before the end, and without one, those that are known of.
	Steps int `json:"steps"`
}

// staleAfter is how old what the machine said may be without being marked.
const staleAfter = time.Minute

// lost is the state of a run whose owner is gone without having ended it.
const lost State = "lost"

// Summarise reads a run's folder. What is missing or broken there is left out.
func Summarise(r *rundir.Run) Summary {
	s := Summary{ID: r.ID, Dir: r.Dir, State: Preparing, Running: r.Running()}
	s.Owner, _ = r.Owner()
	var status Status
	err := r.ReadJSON(rundir.StatusFile, &status)
	if err == nil && status.State == "" {
		err = fmt.Errorf("read %s: it is damaged: it names no state", r.Path(rundir.StatusFile))
	}
	if err == nil {
		s.State, s.Updated, s.Step, s.Failure, s.Message = status.State, status.Updated, status.Step, status.Failure, status.Message
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.Message = err.Error()
	}
	var said hostwatch.State
	if r.ReadJSON(rundir.MachineFile, &said) == nil {
		s.Machine = &said
	}
	var report show.Report
	if r.ReadJSON(rundir.ReportJSON, &report) == nil {
		s.Steps = max(report.Steps, report.LastStep)
	} else {
		s.Steps = stepsSoFar(r)
		if s.Step != nil {
			s.Steps = max(s.Steps, s.Step.Number)
		}
	}
	if !s.Running && !s.State.Over() {
		s.State = lost
	}
	return s
}

// Text says it in a few lines.
func (s Summary) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s: %s", s.ID, s.State)
	if s.Running {
		fmt.Fprintf(&b, " (pid %d on %s)", s.Owner.PID, s.Owner.Host)
	}
	b.WriteString("\n")
	if s.Owner.Script != "" {
		fmt.Fprintf(&b, "script: %s, started %s", s.Owner.Script, s.Owner.Started.Format(time.RFC3339))
		if !s.Owner.TakenUp.IsZero() {
			fmt.Fprintf(&b, ", taken up again %s", s.Owner.TakenUp.Format(time.RFC3339))
		}
		b.WriteString("\n")
	}
	if s.Step != nil {
		fmt.Fprintf(&b, "%s\n", show.Progress(*s.Step, 0))
	}
	if s.Steps > 0 && (s.Step == nil || !s.Running) {
		fmt.Fprintf(&b, "steps: %d\n", s.Steps)
	}
	if s.Message != "" {
		fmt.Fprintf(&b, "%s\n", s.Message)
	}
	if s.Running && s.Machine != nil {
		for _, line := range s.Machine.Lines() {
			fmt.Fprintf(&b, "%s\n", line)
		}
		if age := time.Since(s.Machine.Updated); age > staleAfter {
			fmt.Fprintf(&b, "(as it was at %s)\n", s.Machine.Updated.Format(time.RFC3339))
		}
	}
	fmt.Fprintf(&b, "all of it: %s\n", s.Dir)
	return b.String()
}

// SummaryTable lists runs.
func SummaryTable(all []Summary) string {
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{s.ID, string(s.State), s.Owner.Script, fmt.Sprint(s.Steps)})
	}
	return show.Table([]string{"run", "state", "script", "steps"}, rows, 3)
}
