package orchestrator

import "testing"

func TestStates(t *testing.T) {
	for _, path := range [][]State{
		{Preparing, Profiling, Planning, Starting, Training, Done},
		{Preparing, Planning, Starting, Training, Failed},
		{Preparing, Stopped},
		{Preparing, Planning, Comparing, Starting, Training, Done},
		{Preparing, Profiling, Planning, Starting, Stopped},
		{Preparing, Planning, Starting, Training, Restarting, Starting, Training, Done},
		{Preparing, Planning, Starting, Restarting, Planning, Starting, Training, Restarting, Failed},
	} {
		for i := range path[1:] {
			if err := path[i].next(path[i+1]); err != nil {
				t.Error(err)
			}
		}
		if !path[len(path)-1].Over() {
			t.Errorf("%s is not the end", path[len(path)-1])
		}
	}
	for _, bad := range [][2]State{{Done, Training}, {Training, Profiling}, {Preparing, Training}, {Failed, Done}} {
		if bad[0].next(bad[1]) == nil {
			t.Errorf("from %s to %s", bad[0], bad[1])
		}
	}
}
