package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A restart and resume name the newest checkpoint; what the script loads in its place, or that it
// loads nothing that was seen, is said.
func TestWhatTheScriptReallyLoaded(t *testing.T) {
	const begin = "until 1 steps 3\nuntil 1 save\nuntil 1 steps 5\nuntil 1 save\nuntil 1 link step-005 latest\nuntil 1 kill 1\n"
	for name, c := range map[string]struct{ then, says string }{
		"an older one":           {"load step-003\ngo-on 3\n", "note: the script has loaded CHECKPOINTS/step-003, and not CHECKPOINTS/step-005, which is the newest whole checkpoint known"},
		"none":                   {"go-on 2\n", "note: the script was not seen to load CHECKPOINTS/step-005, or any other distributed checkpoint"},
		"the newest one":         {"load step-005\ngo-on 5\n", ""},
		"the newest by a link":   {"load latest\ngo-on 5\n", ""},
		"a model to begin with":  {"load step-003\nload step-005\ngo-on 5\n", ""},
		"an older one and ended": {"load step-003\nend nothing-left\n", "note: the script has loaded CHECKPOINTS/step-003, and not CHECKPOINTS/step-005"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.mustRun(exitDone, nil, "--devices", b.devices(), resume, b.file("train.py", "measure float32\n"+begin+c.then+"steps 6\n"))
			run, err := filepath.EvalSymlinks(filepath.Join(b.dir, "state", "runs", "latest"))
			if err != nil {
				t.Fatal(err)
			}
			text, says := b.err.String(), strings.ReplaceAll(c.says, "CHECKPOINTS", filepath.Join(run, "checkpoints"))
			if says == "" && strings.Contains(text, "note: the script ") || strings.Count(text, says) < 1 || says != "" && strings.Count(text, "note: the script ") != 1 {
				t.Errorf("%q is not in, or something else is:\n%s", says, text)
			}
		})
	}
}

// Another run that saves into the same folder is named once, however often workers come up.
func TestAnotherRunInTheFolderIsNamedOnce(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "steps 3\nonly 0 shared\nsave\nuntil 1 kill 1\nsteps 5\n", nil, resume)
	if n := strings.Count(b.err.String(), "note: another run saves checkpoints into "); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.err)
	}
}
