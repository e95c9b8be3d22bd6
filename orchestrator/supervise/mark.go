package supervise

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Mark is a name in the environment of every guarded program.
const Mark = "CEPHALO_GUARDED"

// marked says whether a process was started with the mark in its environment.
func marked(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for _, entry := range bytes.Split(data, []byte{0}) {
		if bytes.HasPrefix(entry, []byte(Mark+"=")) {
			return true
		}
	}
	return false
}
