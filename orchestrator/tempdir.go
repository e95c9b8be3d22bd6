package orchestrator

import (
	"fmt"
	"os"
)

// longestTemp keeps the sockets in the folder below the 107 bytes that the address
// of a unix socket can have.
const longestTemp = 80

// tempDir makes a private folder with a short path for sockets and pipes.
func tempDir() (string, error) {
	for _, parent := range []string{"", "/tmp"} {
		dir, err := os.MkdirTemp(parent, "cephalo-")
		if err != nil {
			if parent == "" {
				continue
			}
			return "", fmt.Errorf("make temporary folder: %w", err)
		}
		if len(dir) <= longestTemp {
			return dir, nil
		}
		_ = os.Remove(dir)
	}
	return "", fmt.Errorf("make temporary folder: every path is longer than %d bytes", longestTemp)
}
