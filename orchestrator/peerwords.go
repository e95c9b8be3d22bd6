package orchestrator

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// peerWords occur in errors that tell of the death of another rank.
var peerWords = []string{
	"connection closed by peer", "connection reset by peer", "broken pipe", "connection refused",
	"remote process exited", "peer is gone", "nccl", "gloo", "timed out waiting", "tcpstore",
}

// transportWords occur in what transports raise where the script itself waits for one.
var transportWords = []string{"gloo/transport", "third_party/gloo", "processgroupnccl", "ncclremoteerror"}

// raisedIn finds the files of a traceback.
var raisedIn = regexp.MustCompile(`(?m)^ *File "([^"]+)"`)

// speaksOfPeers says that an exception tells of the death of another rank. One that was not
// raised inside of PyTorch is the script's own, whatever its words: a tracker refuses
// connections too.
func speaksOfPeers(e events.Event) bool {
	text := strings.ToLower(e.Exception + " " + e.Message)
	says := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	if files := raisedIn.FindAllStringSubmatch(e.Traceback, -1); len(files) > 0 {
		last := files[len(files)-1][1]
		if !strings.Contains(last, "/torch/") && !strings.Contains(last, "/cephalo/") {
			return says(transportWords)
		}
	}
	return says(peerWords)
}
