package rpc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/rpc"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-plugin"

	"github.com/cephalorun/cephalorun/profiler"
)

// Limits of a client, unless it is given others.
const (
	DefaultStartLimit = 10 * time.Second
	// DefaultCallLimit leaves the plugin time to give up on one device (5 s to
	// start the driver, 5 s a device, 5 s for the paths between them).
	DefaultCallLimit = 20 * time.Second
	// endLimit is how long ending the plugin may hold up the host. A process
	// stuck in the driver cannot be reaped; it dies when the driver lets go.
	endLimit = 3 * time.Second
)

// Client asks the plugin for devices. Each call starts the plugin, asks, and
// ends it: nothing is left behind, whatever the outcome.
type Client struct {
	// Path is the plugin's file; empty means beside the main executable.
	Path string
	// Checksum, when given, is the SHA-256 that the file must have.
	Checksum []byte
	// Request is what to ask.
	Request Request
	// StartLimit and CallLimit bound the two steps; 0 means the defaults.
	StartLimit, CallLimit time.Duration
	// Logger takes the plugin's log; nil drops it.
	Logger *slog.Logger
}

var _ profiler.Provider = Client{}

// Devices implements profiler.Provider. That the plugin is missing, does not
// start or does not answer is an ErrCannotAsk; that it found no driver an
// ErrNoDriver.
func (c Client) Devices(ctx context.Context) ([]profiler.Device, error) {
	p, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	var answer Reply
	if err := c.call(ctx, p.connection, method, &answer); err != nil {
		p.kill() // it is no use waiting for it to go by itself
		p.end()
		return nil, err
	}
	p.end()
	return answer.result()
}

// process is a plugin that runs.
type process struct {
	host       *plugin.Client
	connection *rpc.Client
	kill       func()
	pid        int
}

// end asks the plugin to go, and makes it go.
func (p process) end() {
	within(endLimit, p.host.Kill)
	p.kill()
}

// start starts the plugin.
func (c Client) start(ctx context.Context) (process, error) {
	path, err := Locate(c.Path)
	if err != nil {
		return process{}, err
	}
	// The plugin's own context: ending it kills the process, whatever it does.
	// The caller's context must not, before the plugin was asked to go.
	running, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(running, path)
	cmd.Env = append(environment(os.Environ()), hostVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.SysProcAttr = dieWithHost()
	config := &plugin.ClientConfig{
		HandshakeConfig:  Handshake(),
		Plugins:          pluginSet(nil),
		Cmd:              cmd,
		AutoMTLS:         true,
		SkipHostEnv:      true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolNetRPC},
		StartTimeout:     cmp.Or(c.StartLimit, DefaultStartLimit),
		Logger:           bridge(c.Logger),
	}
	if len(c.Checksum) > 0 {
		config.SecureConfig = &plugin.SecureConfig{Checksum: c.Checksum, Hash: sha256.New()}
	}
	host := plugin.NewClient(config)
	connection, err := connect(ctx, host, kill, config.StartTimeout)
	if err != nil {
		kill()
		return process{}, fmt.Errorf("%w: start the NVML plugin %s: %w", profiler.ErrCannotAsk, path, explain(err))
	}
	return process{host: host, connection: connection, kill: kill, pid: cmd.Process.Pid}, nil
}

// environment is what the plugin needs of ours: where to find libraries and
// where to put its socket. A long TMPDIR would not fit a socket's name.
func environment(environ []string) []string {
	var out []string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "LD_LIBRARY_PATH", "PATH", "HOME":
			out = append(out, entry)
		case "TMPDIR":
			if len(value) <= 60 {
				out = append(out, entry)
			}
		}
	}
	return out
}

// connect starts the plugin and opens the connection; on any failure the
// plugin has been killed.
func connect(ctx context.Context, host *plugin.Client, kill func(), limit time.Duration) (*rpc.Client, error) {
	type started struct {
		connection *rpc.Client
		err        error
	}
	got := make(chan started, 1)
	go func() {
		connection, err := dispense(host)
		got <- started{connection, err}
	}()
	timer := time.NewTimer(limit + time.Second) // go-plugin keeps to limit itself
	defer timer.Stop()
	var err error
	select {
	case s := <-got:
		if s.err == nil {
			return s.connection, nil
		}
		err = s.err
		kill()
	case <-ctx.Done():
		err = context.Cause(ctx)
		kill()
		within(endLimit, func() { <-got })
	case <-timer.C:
		err = fmt.Errorf("timeout after %s", limit)
		kill()
		within(endLimit, func() { <-got })
	}
	within(endLimit, host.Kill)
	return nil, err
}

func dispense(host *plugin.Client) (*rpc.Client, error) {
	protocol, err := host.Client()
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Dispense(pluginName)
	if err != nil {
		return nil, err
	}
	connection, ok := raw.(*rpc.Client)
	if !ok {
		return nil, fmt.Errorf("unexpected connection %T", raw)
	}
	return connection, nil
}

func (c Client) call(ctx context.Context, connection *rpc.Client, method string, answer any) error {
	limit := cmp.Or(c.CallLimit, DefaultCallLimit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	call := connection.Go(method, c.Request, answer, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return fmt.Errorf("%w: the NVML plugin ended while it was asked: %w", profiler.ErrCannotAsk, call.Error)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: ask the NVML plugin: %w", profiler.ErrCannotAsk, context.Cause(ctx))
	case <-timer.C:
		return fmt.Errorf("%w: the NVML plugin does not answer within %s: the NVIDIA driver hangs", profiler.ErrCannotAsk, limit)
	}
}

// within reports whether do came back in time; if not it is left to itself.
func within(limit time.Duration, do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// explain says in our words what go-plugin's message means.
func explain(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "Failed to read any lines"), strings.Contains(text, "plugin exited before"):
		return fmt.Errorf("it ended before its handshake; run it by hand to see why (%w)", err)
	case strings.HasPrefix(text, "Unrecognized remote plugin message:"):
		line, _, _ := strings.Cut(strings.TrimPrefix(text, "Unrecognized remote plugin message:"), "\n")
		return fmt.Errorf("it printed before its handshake: %q: is it really %s? (%w)", strings.TrimSpace(line), BinaryName, err)
	case strings.Contains(text, "incompatible API version"), strings.Contains(text, "incompatible core API"):
		return fmt.Errorf("it is of another release than this cephalorun; build both together (%w)", err)
	case strings.Contains(text, "checksums did not match"):
		return fmt.Errorf("its file is not the one that was built with this cephalorun (%w)", err)
	default:
		return err
	}
}
