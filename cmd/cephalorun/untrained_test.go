package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// A script that ends well and trains nothing ends alike, whether its model is measured or was
// before; no rank is to blame.
func TestAScriptThatTrainsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		code   int
		says   string
		left   bool
	}{
		"without a step while it is measured":     {"end untrained\n", exitScript, "train.py ended without a training step, so there was nothing to measure", false},
		"without units while it is measured":      {"end untrained without a call of x\n", exitScript, "train.py ended without a call of x, so there was nothing to measure", false},
		"without a step after a kept measurement": {"measure float32\nend untrained\n", exitScript, "train.py ended without a training step, so nothing was trained", false},
		"nothing left while it is measured":       {"end nothing-left\n", exitDone, "done after 0 steps", true},
		"nothing left after a kept measurement":   {"measure float32\nend nothing-left\n", exitDone, "done after 0 steps", true},
		"one rank knows that nothing is left":     {"only 0 end untrained\nend nothing-left\n", exitDone, "done after 0 steps", true},
		"one rank trained":                        {"measure float32\nonly 0 end untrained\nsteps 3\n", exitDone, "done after 0 steps", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.mustRun(c.code, []string{c.says}, "--devices", b.devices(), b.file("train.py", c.script))
			if text := b.err.String(); c.code != exitDone && (strings.Contains(text, "rank 0 ") || strings.Contains(text, "rank 1 ")) {
				t.Errorf("a rank is blamed:\n%s", text)
			}
			if said := strings.Contains(b.err.String(), ": the script found nothing left to do"); said != c.left {
				t.Errorf("nothing left: %v\n%s", said, b.err)
			}
			if c.code != exitDone {
				return
			}
			var report show.Report
			mustReadJSON(t, filepath.Join(b.dir, "state", "runs", "latest", "report.json"), &report)
			if report.NothingLeft != c.left || report.Outcome != "done" {
				t.Errorf("report: %+v", report)
			}
			b.mustRun(exitDone, []string{": done"}, "status")
		})
	}
}

// There is nothing to plan for, or to measure, where nothing is left to train.
func TestNothingLeftIsNothingToMeasure(t *testing.T) {
	for _, command := range []string{"plan", "profile"} {
		b := newBench(t)
		b.mustRun(exitScript, []string{"train.py ended and found nothing left to train, so there was nothing to measure"},
			command, "--devices", b.devices(), b.file("train.py", "end nothing-left\n"))
	}
}
