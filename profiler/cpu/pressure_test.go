package cpu

import "testing"

// User case 32: what the control group says, in all its forms.
func TestUserCase32PressureOfTheControlGroup(t *testing.T) {
	const v1 = "sys/fs/cgroup/memory/job/"
	cases := map[string]struct {
		files map[string]string
		want  Pressure
	}{
		"version 2": {map[string]string{"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/memory.events": "low 0\noom 3\noom_kill 2",
			"sys/fs/cgroup/job/memory.max": "4096", "sys/fs/cgroup/job/memory.peak": "4000"}, Pressure{2, 4096, 4000}},
		"version 1": {map[string]string{"proc/self/cgroup": "5:memory:/job", v1 + "memory.oom_control": "oom_kill_disable 0\noom_kill 7",
			v1 + "memory.limit_in_bytes": "8192", v1 + "memory.max_usage_in_bytes": "8000"}, Pressure{7, 8192, 8000}},
		"both": {map[string]string{"proc/self/cgroup": "0::/x\n5:memory:/job", v1 + "memory.oom_control": "oom_kill 7",
			"sys/fs/cgroup/unified/x/cgroup.procs": "1"}, Pressure{7, -1, -1}},
		"a container that sees another path": {map[string]string{"proc/self/cgroup": "0::/../../pods/one", "sys/fs/cgroup/memory.events": "oom_kill 1"}, Pressure{1, -1, -1}},
		"none":                               {nil, Pressure{0, -1, -1}},
		"nonsense":                           {map[string]string{"proc/self/cgroup": "what\n0::/", "sys/fs/cgroup/memory.events": "oom_kill many"}, Pressure{0, -1, -1}},
	}
	for name, c := range cases {
		if got := ReadPressure(tree(t, c.files)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
