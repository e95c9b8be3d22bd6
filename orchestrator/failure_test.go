package orchestrator

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/events"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
)

func code(n int) *int { return &n }

func TestUserCase31TheFirstRealFailureIsNamed(t *testing.T) {
	hello := func(rank int) events.Event { return events.Event{Kind: events.Hello, Rank: rank} }
	step := func(rank, n int) events.Event { return events.Event{Kind: events.Step, Rank: rank, Step: n} }
	gone := func(rank int) events.Event { return events.Event{Kind: events.Gone, Rank: rank} }
	raised := func(rank int, exception, message string) events.Event {
		return events.Event{Kind: events.Error, Rank: rank, Exception: exception, Message: message, UserFrame: "train.py:45 in main"}
	}
	exit := func(rank, c int) events.Event { return events.Event{Kind: events.Exit, Rank: rank, Code: code(c)} }
	peers := "[gloo] Connection closed by peer [127.0.0.1]:4711"
	cases := map[string]struct {
		events  []events.Event
		rank    int
		reason  string
		step    int
		victims []int
		says    string
	}{
		"an exception on one rank": {
			[]events.Event{hello(0), hello(1), step(0, 3), step(1, 3), raised(1, "ValueError", "boom"), exit(1, 1), gone(1), raised(0, "RuntimeError", peers), exit(0, 1), gone(0)},
			1, reasonException, 3, []int{0}, "rank 1 failed after step 3: ValueError: boom (train.py:45 in main)"},
		"the victim reports first": {
			[]events.Event{hello(0), hello(1), raised(0, "RuntimeError", peers), exit(0, 1), raised(1, "ValueError", "boom"), exit(1, 1)},
			1, reasonException, 0, []int{0}, "rank 1 failed before its first step: ValueError: boom"},
		"a rank that was killed": {
			[]events.Event{hello(0), hello(1), hello(2), step(2, 1), gone(2), raised(0, "DistBackendError", "NCCL error"), raised(1, "RuntimeError", peers)},
			2, reasonKilled, 1, []int{0, 1}, "killed or crashed"},
		"a rank that left early with exit 0": {
			[]events.Event{hello(0), hello(1), exit(0, 0), gone(0), raised(1, "RuntimeError", peers), exit(1, 1)},
			0, reasonEarlyExit, 0, []int{1}, "ended early"},
		"sys.exit with a code": {
			[]events.Event{hello(0), hello(1), exit(1, 3), gone(1), gone(0)},
			1, reasonException, 0, []int{0}, "exit code 3"},
		"a SIGINT to one worker": {
			[]events.Event{hello(0), hello(1), step(1, 2), raised(1, "KeyboardInterrupt", ""), exit(1, 1), gone(1), raised(0, "RuntimeError", peers)},
			1, reasonKilled, 2, []int{0}, "rank 1 failed after step 2: somebody sent the worker a SIGINT (KeyboardInterrupt), unless the script raises that by itself (train.py:45 in main)"},
		"only peers are spoken of": {
			[]events.Event{hello(0), hello(1), raised(1, "RuntimeError", peers), raised(0, "RuntimeError", peers)},
			1, reasonException, 0, []int{0}, "Connection closed"},
		"no worker ever came up": {nil, events.NoRank, reasonLauncher, 0, nil, "could not be started: torchrun ended with exit code 1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStories(3)
			if c.victims != nil {
				s = newStories(len(c.victims) + 1)
			}
			for _, e := range c.events {
				s.add(e)
			}
			f := s.judge(supervise.Outcome{Status: supervise.Status{Code: 1}}, events.NoRank)
			if f.Rank != c.rank || f.Reason != c.reason || f.Step != c.step || !slices.Equal(f.Victims, c.victims) {
				t.Errorf("got %+v", f)
			}
			if !strings.Contains(f.Headline(), c.says) {
				t.Errorf("headline %q", f.Headline())
			}
		})
	}
}

// Ranks that are ended because they stood still do not hide the one they waited for.
func TestTheRankThatLeftEarlyIsFoundAmongTheKilled(t *testing.T) {
	s := newStories(2)
	for _, e := range []events.Event{
		{Kind: events.Hello, Rank: 0}, {Kind: events.Hello, Rank: 1},
		{Kind: events.Exit, Rank: 1, Code: code(0)}, {Kind: events.Gone, Rank: 1}, {Kind: events.Gone, Rank: 0},
	} {
		s.add(e)
	}
	if f, ok := s.leftEarly(); !ok || f.Rank != 1 || f.Reason != reasonEarlyExit {
		t.Errorf("%v, %+v", ok, f)
	}
}

// Words about connections say nothing of peers where the script itself raises them.
func TestWhoSpeaksOfPeers(t *testing.T) {
	user, inside := "  File \"/home/me/train.py\", line 3, in main\n", "  File \"/v/site-packages/torch/distributed/c10d.py\", line 9, in wait\n"
	cases := []struct {
		message, traceback string
		want               bool
	}{
		{"cannot reach the tracker: Connection refused", user, false},
		{"plugin aws-nccl missing", inside + user, false},
		{"Connection closed by peer", user + inside, true},
		{"[../third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer", user, true},
		{"Connection closed by peer", "", true},
		{"boom", inside, false},
	}
	for _, c := range cases {
		e := events.Event{Kind: events.Error, Exception: "RuntimeError", Message: c.message, Traceback: c.traceback}
		if got := speaksOfPeers(e); got != c.want {
			t.Errorf("%q raised in %q: %v", c.message, c.traceback, got)
		}
	}
}

// The streams of a killed rank, and of one that was ended because of it, may be read in
// any order; torchrun knows.
func TestTheRankThatWasKilledFirst(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 0, 1}} {
		s := newStories(3)
		for _, rank := range order {
			s.add(events.Event{Kind: events.Hello, Rank: rank})
			s.add(events.Event{Kind: events.Gone, Rank: rank})
		}
		words := &launcherWords{file: devNull(t)}
		words.line([]byte("worker group fails\n"))
		words.line([]byte(`{"first_failure": {"rank": 1, "exit_code": -9}}` + "\n"))
		f := s.judge(supervise.Outcome{Status: supervise.Status{Code: 1}}, words.killedFirst())
		if f.Rank != 1 || !slices.Equal(f.Victims, []int{0, 2}) || len(words.tail()) != 1 {
			t.Errorf("order %v: %+v, %q", order, f, words.tail())
		}
	}
}

// A worker that is killed while Python starts has said nothing; torchrun has seen it.
func TestAWorkerThatIsKilledWhileItStarts(t *testing.T) {
	words := &launcherWords{file: devNull(t)}
	words.line([]byte(`{"first_failure": {"rank": 1, "exit_code": -9}}` + "\n"))
	f := newStories(2).judge(supervise.Outcome{Status: supervise.Status{Code: 1}}, words.killedFirst())
	if f.Rank != 1 || causeOf(f, evidence{}) != WorkerKilled || !slices.Equal(f.Victims, []int{0}) {
		t.Errorf("got %+v", f)
	}
	if got := [2]string{words.signalOf(1), words.signalOf(0)}; got != [2]string{"SIGKILL", ""} {
		t.Errorf("signals %q", got)
	}
	if causeOf(f, evidence{oomKills: 1}) != HostMemory {
		t.Errorf("the kernel's part is not seen")
	}
}

// A process that stays after its script has ended is no reason to blame one that is gone.
func TestNobodyLeftEarlyWhenAllHaveEnded(t *testing.T) {
	s, done := newStories(2), 0
	for rank := range 2 {
		s.add(events.Event{Kind: events.Exit, Rank: rank, Code: &done})
	}
	s.add(events.Event{Kind: events.Gone, Rank: 0})
	if f := s.judge(supervise.Outcome{}, events.NoRank); f.Rank != events.NoRank {
		t.Errorf("got %+v", f)
	}
}

// Where workers have trained before, a launch that fails is tried again.
func TestALaunchThatFails(t *testing.T) {
	for best, again := range map[int]bool{0: false, 10: true} {
		r := restarts{BestStep: best}
		v := r.judge(policy{max: 3, resumable: true}, pastFailure{Cause: NoLaunch, Rank: events.NoRank}, best, best)
		if v.again != again {
			t.Errorf("after %d steps: %+v", best, v)
		}
	}
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
