package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cephalorun/cephalorun/orchestrator/rundir"
	"github.com/cephalorun/cephalorun/orchestrator/supervise"
	"github.com/cephalorun/cephalorun/solver"
)

// The tests of whole runs need a Python with PyTorch, torchrun and workers. All of
// them are this test binary, started again as what this name says. The "script" that
// the workers run is a list of commands; see fakeWorker.script.
const fakeRole = "FAKE_PYTHON_ROLE"

// fakeTorch is the version of PyTorch that the fake has.
const fakeTorch = "FAKE_PYTHON_TORCH"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		if supervise.Guard() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(mainRole) != "" {
		_ = os.Unsetenv(mainRole)
		if state := os.Getenv(smallDisk); state != "" {
			_ = os.Unsetenv(smallDisk)
			os.Exit(fakeSmallDisk(state, os.Args[1:]))
		}
		os.Exit(fakeMain(os.Args[1:]))
	}
	switch os.Getenv(fakeRole) {
	case "":
		os.Exit(m.Run())
	case "cephalorun": // the program itself
		_ = os.Unsetenv(fakeRole)
		os.Exit(start())
	case "worker":
		os.Exit(fakeWork(os.Args[1:]))
	default:
		os.Exit(fakePython(os.Args[1:]))
	}
}

// fakeCheckpoints answers what is asked of checkpoints. With a file "slow" in one it never comes
// to an end, and an export has begun to write by then.
func fakeCheckpoints(verb string, args []string) int {
	paths := args
	if verb == "export" {
		paths = args[:1]
		_ = os.WriteFile(args[2], []byte("a part"), 0o644)
	}
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join(path, "slow")); err == nil {
			fmt.Println(`{"done": 1, "of": 4}`)
			time.Sleep(time.Minute)
		}
		problems := []string{}
		if text, _ := os.ReadFile(filepath.Join(path, "shard")); strings.HasPrefix(string(text), "spoilt") {
			problems = append(problems, "weight: shard cannot be read")
		}
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"report": map[string]any{"problems": problems, "tensors": 1, "files": 2}})
	}
	return 0
}

// monitorInterval is how often torchrun looks at its workers.
const monitorInterval = 100 * time.Millisecond

// fakePython answers what version it is, or plays torchrun.
func fakePython(args []string) int {
	if len(args) > 3 && args[0] == "-c" && slices.Contains([]string{"verify", "verify-deep", "export"}, args[3]) {
		return fakeCheckpoints(args[3], args[4:])
	}
	if args[0] == "-c" {
		fmt.Printf(`{"path": "fake", "python": "3.12.0", "torch": %q}`+"\n", os.Getenv(fakeTorch))
		return 0
	}
	n, _ := strconv.Atoi(args[slices.Index(args, "--nproc-per-node")+1])
	shim := slices.IndexFunc(args, func(a string) bool { return filepath.Base(a) == "shim.py" })
	type end struct {
		rank int
		err  error
	}
	ended := make(chan end, n)
	var workers []*exec.Cmd
	for rank := range n {
		c := &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{"worker"}, args[shim+1:]...),
			Env:    append(os.Environ(), fakeRole+"=worker", "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(n), "LOCAL_RANK="+strconv.Itoa(rank)),
			Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
		if err := c.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		workers = append(workers, c)
		go func() { ended <- end{rank, c.Wait()} }()
	}
	code := 0
	for range n {
		if one := <-ended; one.err != nil && code == 0 {
			code = 1
			status := workers[one.rank].ProcessState.Sys().(syscall.WaitStatus)
			exit := status.ExitStatus()
			if status.Signaled() {
				exit = -int(status.Signal())
			}
			fmt.Fprintf(os.Stderr, `{"first_failure": {"rank": %d, "exit_code": %d}}`+"\n", one.rank, exit)
			time.Sleep(monitorInterval)
			for _, c := range workers {
				_ = c.Process.Signal(unix.SIGTERM)
			}
		}
	}
	return code
}

// fakeWorker is one rank.
type fakeWorker struct {
	rank   int
	conn   net.Conn
	told   chan string // what the supervisor says
	step   int         // the last one that is done
	met    int         // meetings of the ranks so far
	stepMs int         // of a step; 0 is the usual
	end    string      // what its exit says
	// perSample is what each rank computes for a sample, in ms; nil is the usual.
	perSample []string
}

func fakeWork(argv []string) int {
	rank, _ := strconv.Atoi(os.Getenv("RANK"))
	for fd, name := range map[int]string{1: "out", 2: "err"} {
		pipe, err := unix.Open(filepath.Join(os.Getenv("CEPHALO_OUTPUT"), fmt.Sprintf("rank-%d.%s", rank, name)), unix.O_WRONLY, 0)
		if err != nil {
			return 70
		}
		_ = unix.Dup2(pipe, fd)
	}
	conn, err := net.Dial("unix", os.Getenv("CEPHALO_SOCKET"))
	if err != nil {
		return 71
	}
	w := &fakeWorker{rank: rank, conn: conn, told: make(chan string, 100)}
	go w.listen()
	w.send("hello", map[string]any{"local_rank": rank, "pid": os.Getpid()})
	if os.Getenv("CEPHALO_MODE") == "hardware" {
		w.write(map[string]any{"hardware": map[string]any{"matmul_tflops": map[string]float64{"fp32": 1.5}, "memory_gb_per_s": 20, "host_link_gb_per_s": nil,
			"collectives": []any{map[string]any{"collective": "all_gather", "bytes": 1 << 20, "ms": 2.5, "gb_per_s": 0.4}}}})
		w.send("exit", map[string]any{"code": 0})
		return 0
	}
	text, err := os.ReadFile(argv[0])
	if err != nil {
		return 72
	}
	w.send("start", map[string]any{"pid": os.Getpid(), "host": "here", "torch": "2.15.0"})
	code := w.script(strings.Split(string(text), "\n"), argv[1:])
	if code == stoppedCode {
		w.send("exit", map[string]any{"code": 0, "phase": "stopped"})
		return 0
	}
	if phase, how, _ := strings.Cut(w.end, " "); code == endCode {
		w.send("exit", map[string]any{"code": 0, "phase": phase, "message": how})
		return 0
	}
	w.send("exit", map[string]any{"code": code})
	return code
}

// script runs commands, one to a line:
//
//	print TEXT            print to standard output
//	fail RANK CLASS TEXT  raise on that rank; the others see their peer go
//	fail-even ...         fail, but only under the even split
//	kill RANK             that rank dies without a word; the others wait
//	victim                rank 1 dies without a word, and rank 0 raises because of it
//	measure DTYPE         end here when profiling, having measured a model of that type
//	measure-whole DTYPE   the same, of units that cannot be cut
//	too-big               the same with a model that no device can hold
//	steps N [MS]          train to step N; a step takes 10 ms, or as many as given
//	step-held             train a step of which only the number is told
//	until N COMMAND       a command, before the Nth restart only
//	only RANK COMMAND     a command, on that rank only
//	once COMMAND          a command, unless an earlier attempt of the run has done it
//	sleep MS              be slow
//	save                  save a checkpoint of the step that was done last
//	fail-save CAUSE TEXT  a save that the disk did not take
//	resume                with --resume, go on from the newest checkpoint
//	load NAME             load that checkpoint too
//	go-on STEP            go on after that step
//	cut FILE              cut a file of the newest checkpoint short
//	spoil                 write other bytes of the same size into the newest checkpoint
//	kill-launcher N       send that signal to the launcher
//	kill-guard            kill what the launcher runs under
//	lose NAME             take a device out of the devices file
//	find NAME             put it back
//	oom RANK BYTES        that rank runs out of memory and would need so much
//	hang RANK [deaf]      that rank stands still, and the others wait for it; deaf: it does not
//	                      hear what it is told either
//	await COMMAND         wait for that command of the supervisor's, save and stop
//	rename A B            rename a checkpoint
//	shared                another run saves into the folder too
//	link A B              a link B to a checkpoint
//	own NAME              make a file of its own beside the checkpoints
//	per-sample MS MS ...  what the ranks compute for a sample from here on
//	chatter N RATE        print N numbered lines, so many in a second; 0: as fast as it goes
//	end PHASE [HOW]       end here with 0, and with that phase and message in the exit
//	full-log RANK         the log of that rank's training is on a disk that is full
//	fill                  fill the disk of the run's folder
//	deaf                  ignore SIGTERM from here on
//	train-on              train, saving at every step, until told to stop
//	wait                  wait until told to stop, or killed
func (w *fakeWorker) script(lines, args []string) int {
	for _, line := range lines {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "print":
			fmt.Println(rest, strings.Join(args, "|"))
		case "fail":
			who, what, _ := strings.Cut(rest, " ")
			class, text, _ := strings.Cut(what, " ")
			w.meet()
			if who == strconv.Itoa(w.rank) {
				fmt.Fprintln(os.Stderr, "Traceback: "+class)
				w.send("error", map[string]any{"exception": class, "message": text, "user_frame": "train.py:3 in main"})
				return 1
			}
			time.Sleep(time.Minute) // until the launcher ends it
		case "fail-even":
			if filepath.Base(os.Getenv("CEPHALO_PLAN")) == rundir.EvenPlanFile {
				return w.script([]string{"fail " + rest}, args)
			}
		case "victim":
			w.meet()
			if w.rank == 1 {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
			w.send("error", map[string]any{"exception": "RuntimeError", "message": "Connection closed by peer"})
			journal := filepath.Join(os.Getenv("CEPHALO_RUN_DIR"), rundir.EventsFile)
			for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if text, _ := os.ReadFile(journal); strings.Contains(string(text), "closed by peer") {
					break
				}
			}
			fmt.Fprintln(os.Stderr, "Traceback of a victim")
			fmt.Println("goodbye of a victim")
			return 1
		case "kill":
			w.meet()
			if rest == strconv.Itoa(w.rank) {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
			time.Sleep(time.Minute)
		case "measure", "measure-whole", "too-big":
			if os.Getenv("CEPHALO_MODE") == "profile" {
				w.measure(word, rest)
				return 0
			}
		case "steps":
			count, ms, _ := strings.Cut(rest, " ")
			n, _ := strconv.Atoi(count)
			w.stepMs, _ = strconv.Atoi(ms)
			for w.step < n {
				w.trainStep()
			}
		case "step-held":
			w.step++
			w.send("heartbeat", map[string]any{"step": w.step, "phase": "script", "moves": w.step})
		case "until":
			count, command, _ := strings.Cut(rest, " ")
			limit, _ := strconv.Atoi(count)
			if n, _ := strconv.Atoi(os.Getenv("CEPHALO_RESTART_COUNT")); n < limit {
				if code := w.script([]string{command}, args); code != 0 {
					return code
				}
			}
		case "only":
			who, command, _ := strings.Cut(rest, " ")
			if who == strconv.Itoa(w.rank) {
				if code := w.script([]string{command}, args); code != 0 {
					return code
				}
			}
		case "once":
			done := filepath.Join(os.Getenv("CEPHALO_RUN_DIR"), fmt.Sprintf("once-%d", w.rank))
			if _, err := os.Stat(done); err != nil {
				_ = os.WriteFile(done, nil, 0o644)
				if code := w.script([]string{rest}, args); code != 0 {
					return code
				}
			}
		case "sleep":
			ms, _ := strconv.Atoi(rest)
			time.Sleep(time.Duration(ms) * time.Millisecond)
		case "save":
			w.save()
		case "fail-save":
			cause, text, _ := strings.Cut(rest, " ")
			w.send("checkpoint", map[string]any{"phase": "failed", "path": filepath.Join(checkpoints(), "last"), "step": w.step, "message": text, "cause": cause})
		case "resume":
			if slices.Contains(args, "--resume") && !w.resume() {
				w.meet()
				return 1
			}
			w.meet()
			if w.step == 0 && os.Getenv("CEPHALO_MUST_RESUME") != "" {
				return w.script([]string{"fail 0 StartedOver no checkpoint was loaded"}, args)
			}
		case "load":
			w.send("checkpoint", map[string]any{"phase": "loaded", "path": filepath.Join(checkpoints(), rest)})
		case "go-on":
			w.step, _ = strconv.Atoi(rest)
			w.send("resume", map[string]any{"step": w.step})
		case "cut":
			if w.rank == 0 {
				_ = os.Truncate(filepath.Join(w.newest(), rest), 1)
			}
		case "spoil":
			if w.rank == 0 {
				text := "spoilt...."[:8+len(strconv.Itoa(w.step))]
				_ = os.WriteFile(filepath.Join(w.newest(), "shard"), []byte(text), 0o644)
			}
			w.meet()
		case "kill-launcher":
			w.meet()
			if n, _ := strconv.Atoi(rest); w.rank == 0 {
				_ = unix.Kill(os.Getppid(), unix.Signal(n))
			}
			time.Sleep(time.Minute)
		case "kill-guard":
			w.meet()
			if launcher, err := supervise.ReadProcess(os.Getppid()); err == nil && w.rank == 0 {
				_ = unix.Kill(launcher.Parent, unix.SIGKILL)
			}
			time.Sleep(time.Minute)
		case "wait":
			fmt.Println("waiting")
			<-w.told
			return 0
		case "lose":
			w.devices(func(text string) string { return strings.Replace(text, "  - { name: "+rest, "  # - { name: "+rest, 1) })
		case "find":
			w.devices(func(text string) string { return strings.ReplaceAll(text, "  # -", "  -") })
		case "oom":
			who, needed, _ := strings.Cut(rest, " ")
			w.meet()
			if who == strconv.Itoa(w.rank) {
				n, _ := strconv.ParseInt(needed, 10, 64)
				w.send("error", map[string]any{"exception": "RuntimeError", "message": "can't allocate memory", "out_of_memory": true, "needed_bytes": n})
				return 1
			}
			time.Sleep(time.Minute)
		case "hang":
			w.meet()
			who, deaf, _ := strings.Cut(rest, " ")
			if who == strconv.Itoa(w.rank) {
				w.send("heartbeat", map[string]any{"step": w.step, "phase": "script", "moves": 7})
				if deaf != "" {
					time.Sleep(time.Minute)
				}
			} else {
				w.send("heartbeat", map[string]any{"step": w.step, "phase": "forward", "unit": "Block 2", "collective": "gather", "moves": 9})
			}
			for told := range w.told {
				if strings.Contains(told, "stacks") {
					path := filepath.Join(os.Getenv("CEPHALO_RUN_DIR"), "logs", fmt.Sprintf("stacks-rank-%d.txt", w.rank))
					_ = os.WriteFile(path, []byte("File train.py, line 3"), 0o644)
					w.send("stacks", map[string]any{"path": path})
				}
			}
		case "await":
			w.meet()
			fmt.Println("waiting")
			for told := range w.told {
				if strings.Contains(told, strconv.Quote(rest)) {
					w.save()
					return stoppedCode
				}
			}
		case "killed-while-stopping": // the others wait for this rank
			w.meet()
			fmt.Println("waiting")
			for told := range w.told {
				if strings.Contains(told, "stop") && rest == strconv.Itoa(w.rank) {
					_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				}
			}
		case "rename": // within the folder of checkpoints
			from, to, _ := strings.Cut(rest, " ")
			if w.rank == 0 {
				_ = os.Rename(filepath.Join(checkpoints(), from), filepath.Join(checkpoints(), to))
			}
		case "shared":
			w.send("checkpoint", map[string]any{"phase": "shared", "path": checkpoints()})
		case "link":
			to, name, _ := strings.Cut(rest, " ")
			if w.rank == 0 {
				_ = os.Symlink(to, filepath.Join(checkpoints(), name))
			}
		case "own":
			if w.rank == 0 {
				path := filepath.Join(checkpoints(), rest)
				_ = os.MkdirAll(filepath.Dir(path), 0o755)
				_ = os.WriteFile(path, nil, 0o644)
			}
		case "per-sample":
			w.perSample = strings.Fields(rest)
		case "chatter":
			count, rate, _ := strings.Cut(rest, " ")
			n, _ := strconv.Atoi(count)
			perSecond, _ := strconv.Atoi(rate)
			w.meet()
			w.chatter(n, perSecond)
		case "full-log":
			_ = os.Symlink("/dev/full", filepath.Join(os.Getenv("CEPHALO_RUN_DIR"), "logs", "rank-"+rest+".log"))
		case "fill":
			if w.rank == 0 {
				w.fill()
			}
			w.meet()
		case "end":
			w.end = rest
			return endCode
		case "deaf":
			signal.Ignore(unix.SIGTERM)
		case "train-on":
			if w.trainOn() {
				return stoppedCode
			}
		}
	}
	return 0
}

// meet waits until every rank is here, as in a collective.
func (w *fakeWorker) meet() {
	w.met++
	world, _ := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	at := func(rank int) string {
		return filepath.Join(os.Getenv("CEPHALO_OUTPUT"), fmt.Sprintf("met-%d-%d", rank, w.met))
	}
	_ = os.WriteFile(at(w.rank), nil, 0o644)
	deadline := time.Now().Add(10 * time.Second)
	for rank := range world {
		for _, err := os.Stat(at(rank)); err != nil && time.Now().Before(deadline); _, err = os.Stat(at(rank)) {
			time.Sleep(time.Millisecond)
		}
	}
}

func (w *fakeWorker) trainStep() {
	w.step++
	w.send("step", map[string]any{"step": w.step, "loss": 5.0 - float64(w.step)/10, "samples": 4,
		"step_ms": max(10, w.stepMs), "compute_ms": w.computeMs(), "wait_ms": 2 + w.rank, "peak_memory_bytes": 1 << 20})
}

// computeMs is what the rank computes in a step.
func (w *fakeWorker) computeMs() float64 {
	if w.perSample == nil {
		return float64(8 - w.rank)
	}
	data, _ := os.ReadFile(os.Getenv("CEPHALO_PLAN"))
	plan, _ := solver.ParsePlan(data)
	ms, _ := strconv.ParseFloat(w.perSample[w.rank], 64)
	return ms * float64(plan.Ranks[w.rank].Batch)
}

// stoppedCode says within this file that a script was stopped from inside, endCode that its exit
// says more than its code.
const (
	stoppedCode = -1
	endCode     = -2
)

// listen hands on what the supervisor says, and ends the worker with it.
func (w *fakeWorker) listen() {
	lines := bufio.NewScanner(w.conn)
	for lines.Scan() {
		w.told <- lines.Text()
	}
	os.Exit(3)
}

// devices rewrites the devices file, once for all ranks.
func (w *fakeWorker) devices(change func(string) string) {
	if w.rank == 0 {
		text, _ := os.ReadFile("devices.yaml")
		_ = rundir.WriteFile("devices.yaml", []byte(change(string(text))))
	}
	w.meet()
}

// fill fills the disk of the run's folder to its last byte.
func (w *fakeWorker) fill() {
	f, err := os.Create(filepath.Join(os.Getenv("CEPHALO_RUN_DIR"), "filler"))
	if err != nil {
		return
	}
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; _, err = f.Write(make([]byte, size)) {
			continue
		}
	}
}

// trainOn trains until it is told to stop; true if it was.
func (w *fakeWorker) trainOn() bool {
	for range 2000 {
		w.trainStep()
		w.save()
		select {
		case <-w.told:
			return true
		case <-time.After(5 * time.Millisecond):
		}
	}
	return false
}

// checkpoints is where the script saves.
func checkpoints() string { return filepath.Join(os.Getenv("CEPHALO_RUN_DIR"), "checkpoints") }

func (w *fakeWorker) save() {
	dir := filepath.Join(checkpoints(), fmt.Sprintf("step-%03d", w.step))
	if w.rank == 0 {
		_ = os.MkdirAll(dir, 0o755)
		_ = os.WriteFile(filepath.Join(dir, "shard"), []byte(strconv.Itoa(w.step)+"........"), 0o644)
		_ = os.WriteFile(filepath.Join(dir, ".metadata"), []byte("\x80\x04N."), 0o644) // a pickle that names no files
	}
	w.send("checkpoint", map[string]any{"phase": "saved", "placed": true, "path": dir, "step": w.step, "files": map[string]int{"shard": 8 + len(strconv.Itoa(w.step))}})
}

// newest is the newest checkpoint there is; empty without one.
func (w *fakeWorker) newest() string {
	found, _ := filepath.Glob(filepath.Join(checkpoints(), "step-*"))
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// resume goes on from the newest checkpoint; false if it is spoilt.
func (w *fakeWorker) resume() bool {
	if dir := w.newest(); dir != "" {
		if text, _ := os.ReadFile(filepath.Join(dir, "shard")); strings.HasPrefix(string(text), "spoilt") {
			w.send("checkpoint", map[string]any{"phase": "not-loaded", "path": dir, "message": "it cannot be read"})
			w.send("error", map[string]any{"exception": "RuntimeError", "message": "cannot read", "user_frame": "train.py:9 in main"})
			return false
		}
		w.step, _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "step-"))
		w.send("checkpoint", map[string]any{"phase": "loaded", "path": dir})
		w.send("resume", map[string]any{"step": w.step})
	}
	return true
}

func (w *fakeWorker) send(kind string, fields map[string]any) {
	fields["kind"], fields["rank"], fields["time"] = kind, w.rank, time.Now().UTC()
	data, _ := json.Marshal(fields)
	_, _ = w.conn.Write(append(data, '\n'))
}

func (w *fakeWorker) write(document map[string]any) {
	data, _ := json.Marshal(document)
	path := filepath.Join(os.Getenv("CEPHALO_RUN_DIR"), "measure", fmt.Sprintf("rank-%d.json", w.rank))
	_ = os.WriteFile(path, data, 0o644)
}

// measure writes what a rank measures of a small model: rank 1 is three times slower.
func (w *fakeWorker) measure(how, dtype string) {
	slow := float64(1 + 2*w.rank)
	parameters := 1000.0
	if how == "too-big" {
		parameters = 1e12
	}
	reason := ""
	if how == "measure-whole" {
		reason = "it is called 2 times in one forward"
	}
	line := func(a float64) [][2]float64 { return [][2]float64{{1, a}, {2, 2 * a}, {4, 4 * a}} }
	w.write(map[string]any{
		"rank": w.rank, "device": map[string]any{"name": "fake", "uuid": ""}, "torch": "2.15.0",
		"script": map[string]any{"batch_per_rank": 8, "data": "distributed-sampler", "samples": 800},
		"model": map[string]any{"name": "Tiny", "parameters": 4 * parameters, "trainable_parameters": 4 * parameters,
			"state_bytes_per_parameter": 16, "optimizer": "AdamW", "dtype": dtype},
		"units": []any{map[string]any{"class": "Block", "count": 4, "parameters": parameters, "trainable_parameters": parameters,
			"whole_batch": reason != "", "whole_batch_reason": reason}},
		"reserved_bytes": 1 << 20, "fixed_ms": 1, "ragged_factor": 1.1,
		"microbatch_overhead_ms": map[string]any{"forward": 0.1, "backward": 0.1},
		"costs": map[string]any{"Block": map[string]any{"forward_ms": line(slow), "backward_ms": line(2 * slow), "memory_bytes": line(1 << 20),
			"kept_bytes_per_sample": map[string]any{"recompute": 1000, "keep": 5000}}},
		"collectives": map[string]any{"Block": map[string]any{"all_gather_ms": 0.5, "reduce_scatter_ms": 0.5}},
		"spread":      map[string]any{"Block": 0.01},
	})
	w.send("profile", map[string]any{"path": "x"})
}
