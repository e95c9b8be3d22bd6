package orchestrator

import (
	"math"
	"strconv"
	"strings"
)

// profileSeconds is the variable that says how long measuring a script's units may take.
const profileSeconds = "CEPHALO_PROFILE_SECONDS"

// checkEnvironment refuses a value that only the workers would stumble over.
func checkEnvironment(environ []string) error {
	for _, entry := range environ {
		text, found := strings.CutPrefix(entry, profileSeconds+"=")
		if !found || text == "" {
			continue
		}
		if s, err := strconv.ParseFloat(text, 64); err != nil || !(s > 0) || math.IsInf(s, 0) {
			return usage("%s is %q in the environment; it must be a number of seconds above 0, such as 40, or not be set", profileSeconds, text)
		}
	}
	return nil
}
