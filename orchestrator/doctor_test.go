package orchestrator

import (
	"errors"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// User case 43: the small /dev/shm of containers is named before anything starts.
func TestUserCase43SharedMemory(t *testing.T) {
	cases := map[string]struct {
		shm   space
		ranks int
		level show.Level
		says  string
	}{
		"a container's": {space{"/dev/shm", 64 << 20, nil}, 4, show.Warning, "/dev/shm has 64 MiB; 4 ranks want about 1.0 GiB: use --shm-size=1g or a memory emptyDir"},
		"enough":        {space{"/dev/shm", 1 << 30, nil}, 4, show.OK, "/dev/shm has 1.0 GiB"},
		"no devices":    {space{"/dev/shm", 16 << 20, nil}, 0, show.Warning, "16 MiB"},
		"none at all":   {space{"/dev/shm", 0, errors.New("no such file")}, 4, show.Warning, "no such file"},
	}
	for name, c := range cases {
		if got := checkSharedMemory(c.shm, c.ranks); got.Level != c.level || !strings.Contains(got.Text, c.says) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := sharedMemory(t.TempDir()); got.err != nil || got.bytes <= 0 {
		t.Errorf("a real file system: %+v", got)
	}
	if got := sharedMemory("/no/such/folder"); got.err == nil {
		t.Error("a folder that is not there has a size")
	}
}
