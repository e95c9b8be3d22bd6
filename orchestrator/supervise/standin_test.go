package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests need other programs: a guard, a launcher with workers, a supervisor to
// be killed. All are this test binary, started again with this name set.
const standIn = "CEPHALO_TEST_STAND_IN"

func TestMain(m *testing.M) {
	switch os.Getenv(standIn) {
	case "":
		os.Exit(m.Run())
	case "guard":
		if err := Guard(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "agent":
		agent(os.Args[1:])
	case "worker":
		worker(os.Args[1:])
	case "helper":
		announce("helper")
		waitForEver()
	case "supervisor":
		superviseForEver(os.Args[1:])
	}
}

// agent plays the launcher: workers in sessions of their own, and misbehaviour.
func agent(args []string) {
	flags := flag.NewFlagSet("agent", flag.ExitOnError)
	workers := flags.Int("workers", 0, "workers to start")
	ignore := flags.Bool("ignore-term", false, "agent and workers ignore SIGTERM")
	lines := flags.Int("lines", 0, "lines to print")
	long := flags.Int("long", 0, "bytes of one long line")
	partial := flags.String("partial", "", "text without a newline")
	code := flags.Int("exit", -1, "exit with this code at once")
	_ = flags.Parse(args)
	if *ignore {
		signal.Ignore(unix.SIGTERM)
	}
	out := bufio.NewWriterSize(os.Stdout, 8<<10)
	for i := range *lines {
		fmt.Fprintf(out, "line %d\n", i)
	}
	if *long > 0 {
		fmt.Fprintln(out, strings.Repeat("x", *long))
	}
	fmt.Fprint(out, *partial)
	_ = out.Flush()
	// Only now: a line of theirs must not land inside one of ours.
	for range *workers {
		startStandIn("worker", fmt.Sprint("-ignore-term=", *ignore))
	}
	if *code >= 0 {
		os.Exit(*code)
	}
	announce("agent")
	waitForEver()
}

// worker plays a training process: its own session, and a helper in yet another.
func worker(args []string) {
	flags := flag.NewFlagSet("worker", flag.ExitOnError)
	ignore := flags.Bool("ignore-term", false, "ignore SIGTERM")
	_ = flags.Parse(args)
	if *ignore {
		signal.Ignore(unix.SIGTERM)
	}
	startStandIn("helper")
	announce("worker")
	waitForEver()
}

// superviseForEver plays a whole supervisor; the test kills it.
func superviseForEver(args []string) {
	s, err := New(guardOptions())
	if err != nil {
		panic(err)
	}
	echo := func(line []byte) { _, _ = os.Stdout.Write(line) }
	tree, err := s.Start(context.Background(), agentCommand(echo, args...))
	if err != nil {
		panic(err)
	}
	tell("guard", tree.Guard())
	waitForEver()
}

// seen is the line with which a stand-in says that it runs.
type seen struct {
	Role    string  `json:"role"`
	Process Process `json:"process"`
}

func announce(role string) { tell(role, os.Getpid()) }

func tell(role string, pid int) {
	p, err := ReadProcess(pid)
	if err != nil {
		panic(err)
	}
	data, _ := json.Marshal(seen{role, p})
	_, _ = os.Stdout.Write(append(data, '\n'))
}

func startStandIn(role string, args ...string) {
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{role}, args...),
		Env: standInEnv(role), Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
}

func waitForEver() {
	for {
		time.Sleep(time.Hour)
	}
}

func standInEnv(role string) []string {
	// The race detector would make every stand-in wait a second at its end.
	return []string{standIn + "=" + role, "GORACE=atexit_sleep_ms=0"}
}

func guardOptions() Options {
	return Options{GuardPath: "/proc/self/exe", GuardArgs: []string{"guard"}, GuardEnv: standInEnv("guard")}
}

func agentCommand(stdout LineFunc, args ...string) Command {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Command{
		Path: exe, Args: append([]string{"agent"}, args...), Env: standInEnv("agent"), Dir: "/",
		Stdout: stdout, Stderr: func(line []byte) { _, _ = os.Stderr.Write(line) },
	}
}

// collectSeen reads lines until n stand-ins said that they run.
func collectSeen(t *testing.T, r io.ReadCloser, n int) []seen {
	t.Helper()
	late := time.AfterFunc(20*time.Second, func() { _ = r.Close() })
	defer late.Stop()
	var all []seen
	in := bufio.NewScanner(r)
	for len(all) < n && in.Scan() {
		var s seen
		if json.Unmarshal(in.Bytes(), &s) == nil && s.Role != "" {
			all = append(all, s)
		}
	}
	if len(all) < n {
		t.Fatalf("only %d of %d processes came up: %v", len(all), n, in.Err())
	}
	return all
}
