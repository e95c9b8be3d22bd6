package launch

import "strconv"

// Torchrun is one start of torchrun on this host.
type Torchrun struct {
	Python   string // absolute path
	Launcher string // the file that starts torchrun
	Shim     string // what torchrun starts as every worker
	RunID    string // differs for every attempt
	Ranks    int
	Script   string
	Args     []string
}

// Argv is the whole command line. It is a list and never goes through a shell.
//
// The rendezvous is at port 0 of the loopback address: the kernel picks a free port
// when the store binds it, so no two runs can want the same one. The address is
// numeric, so nothing depends on how this host resolves its name. Restarts are the
// supervisor's alone.
func (t Torchrun) Argv() []string {
	argv := []string{
		t.Python, t.Launcher,
		"--nnodes", "1",
		"--nproc-per-node", strconv.Itoa(t.Ranks),
		"--max-restarts", "0",
		"--rdzv-backend", "c10d",
		"--rdzv-endpoint", "127.0.0.1:0",
		"--rdzv-id", t.RunID,
		"--local-addr", "127.0.0.1",
		t.Shim,
	}
	if t.Script != "" {
		argv = append(argv, t.Script)
		argv = append(argv, t.Args...)
	}
	return argv
}
