package supervise

import (
	"errors"
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	const tail = " S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9999 1 2"
	cases := map[string]struct {
		line string
		want Process
		bad  bool
	}{
		"plain":                      {"42 (python)" + tail, Process{42, 7, 41, "S", 9999, "python"}, false},
		"blanks and brackets inside": {"42 (a b) (c)" + tail, Process{42, 7, 41, "S", 9999, "a b) (c"}, false},
		"cut short":                  {"42 (python) S 7", Process{}, true},
		"no name":                    {"nonsense", Process{}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(c.line))
			if (err != nil) != c.bad || (!c.bad && got != c.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestDescendants(t *testing.T) {
	all := []Process{{PID: 1}, {PID: 2, Parent: 1}, {PID: 3, Parent: 2}, {PID: 4, Parent: 3}, {PID: 5, Parent: 1}, {PID: 6, Parent: 6}}
	got := descendants(all, 2)
	if len(got) != 2 || got[0].PID != 3 || got[1].PID != 4 {
		t.Errorf("got %v", got)
	}
}

func TestAliveKnowsAReusedPid(t *testing.T) {
	me, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !Alive(me.PID, me.StartTicks) || Alive(me.PID, me.StartTicks+1) {
		t.Error("start time is not looked at")
	}
	if _, err := ReadProcess(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	stranger := me
	stranger.StartTicks++
	if err := stranger.Signal(9); err != nil {
		t.Errorf("error %v", err)
	}
}
