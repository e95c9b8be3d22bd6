package orchestrator

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// A distributed checkpoint that fails on one rank raises the same exception on all of them,
// which names the ranks that failed and holds what each of them says.
const checkpointException = "CheckpointException"

var failedRanks = regexp.MustCompile(`ranks:dict_keys\(\[([0-9, ]+)\]\)`)

// innerFailure looks into such an exception: whether this rank is one of those that
// failed, and the last thing that was said there. ok is false for anything else.
func innerFailure(e events.Event) (own bool, said string, ok bool) {
	found := failedRanks.FindStringSubmatch(e.Message)
	if e.Exception != checkpointException || found == nil {
		return false, "", false
	}
	own = slices.Contains(strings.Split(strings.ReplaceAll(found[1], " ", ""), ","), strconv.Itoa(e.Rank))
	for line := range strings.Lines(e.Message) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.HasPrefix(line, " ") {
			said = line
		}
	}
	return own, said, true
}

// wantsMemory says that an exception's last line is one for want of memory.
func wantsMemory(line string) bool {
	line = strings.ToLower(line)
	return strings.HasPrefix(line, "memoryerror") ||
		slices.ContainsFunc(deviceMemoryWords, func(w string) bool { return strings.Contains(line, w) })
}
