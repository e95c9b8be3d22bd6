package orchestrator

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/events"
)

// launcherSignal is the signal that somebody else sent to torchrun itself, before a rank was
// seen to die; 0 without.
func (a *attempt) launcherSignal(end ended) int {
	if !end.outcome.Unasked || a.words.killedFirst() != events.NoRank {
		return 0
	}
	return max(a.words.ownSignal(), end.outcome.Signal)
}

// failure is the first real failure, with where to read on.
func (a *attempt) failure(end ended) Failure {
	f := end.stories.judge(end.outcome, a.words.killedFirst())
	if signal := a.launcherSignal(end); signal > 0 && (f.Reason != reasonException || f.ofPeers) {
		f = Failure{Rank: events.NoRank, Step: end.stories.steps(), Reason: reasonLauncherKilled,
			Message: fmt.Sprintf("torchrun was ended by signal %d (%s) from outside, and the workers with it; no rank is the cause",
				signal, unix.SignalName(unix.Signal(signal)))}
		if end.outcome.GuardLost {
			f.Message = fmt.Sprintf("cephalorun's guard process (pid %d), which torchrun runs under, was killed from outside, "+
				"and torchrun and the workers with it; no rank is the cause", a.tree.Guard())
		}
	}
	if end.stuck != nil && (f.Rank < 0 || f.Reason == reasonKilled || f.ofPeers) {
		f = *end.stuck
		if early, ok := end.stories.leftEarly(); ok {
			f = early // the others waited for it
		}
		f.Host = end.stories.ranks[f.Rank].host
		f.Step = max(f.Step, end.stories.ranks[f.Rank].steps)
	}
	if name := a.words.signalOf(f.Rank); f.Message == diedSilently && name != "" {
		f.Message = fmt.Sprintf("the process was killed or crashed (%s) without a word", name)
	}
	if f.Rank >= 0 {
		f.Device = a.devices[f.Rank].Label()
		f.LogPath = a.logPath(f.Rank)
		f.Lines = a.ranks.Tail(f.Rank)
		return f
	}
	f.LogPath, f.Lines = a.launchLog, a.words.tail()
	if said := lastException(f.Lines); f.Step == 0 && said != "" {
		f.Message += ": " + said
	}
	return f
}
