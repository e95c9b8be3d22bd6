package main

import (
	"strings"
	"testing"
)

// User case 71: the second device was measured three times slower than it lastingly is. The
// plan is changed once, from the next checkpoint on, and not to and fro.
func TestUserCase71ALastingDriftChangesThePlanOnce(t *testing.T) {
	b := newBench(t)
	b.train(exitDone, "per-sample 12 12\nuntil 1 train-on\nsteps 1500\n", []string{
		"times as long as planned over 40 steps", "is used from the next checkpoint on", "the script goes on after step",
		"global batch 16: as before in this run", "done after 1500 steps",
	}, resume, "--replan-after", "40")
	if p := b.plan(); len(p.Ranks) != 2 || p.Ranks[0].Batch != 8 || p.Ranks[1].Batch != 8 {
		t.Errorf("plan %+v", p)
	}
	if n := strings.Count(b.err.String(), "is used from the next checkpoint on"); n != 1 {
		t.Errorf("the plan was changed %d times:\n%s", n, b.err)
	}
}

// User case 71: what would gain less than a restart is worth stays as it is, and so does
// the plan of a script that is not known to resume.
func TestUserCase71WhenThePlanStays(t *testing.T) {
	for name, c := range map[string]struct {
		perSample string
		flags     []string
		says      string
	}{
		"too little to gain":  {"12 32", []string{resume}, "so the plan stays"},
		"as planned":          {"12 36", []string{resume}, ""},
		"not known to resume": {"12 12", nil, ""},
		"batches by hand":     {"12 12", []string{resume, "--batches", "12,4"}, ""},
		"not wanted":          {"12 12", []string{resume, "--replan-after", "0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.train(exitDone, "per-sample "+c.perSample+"\nsave\nsteps 300\nsave\nsteps 400\n", []string{c.says, "done after 400 steps"},
				append([]string{"--replan-after", "40"}, c.flags...)...)
			if strings.Contains(b.err.String(), "is used from the next checkpoint on") {
				t.Errorf("the plan is changed:\n%s", b.err)
			}
			if c.says == "" && strings.Contains(b.err.String(), "as planned over") {
				t.Errorf("a plan is looked for:\n%s", b.err)
			}
		})
	}
}
