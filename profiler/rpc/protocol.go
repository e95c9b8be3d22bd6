package rpc

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-plugin"

	"github.com/cephalorun/cephalorun/profiler"
)

// BinaryName is the plugin's file name, beside the main executable.
const BinaryName = "cephalorun-nvml"

// Names within the protocol.
const (
	pluginName = "devices"
	method     = "Plugin.Devices"
	// hostVariable holds the host's process id.
	hostVariable = "CEPHALORUN_HOST_PID"
)

// Handshake is what both sides must agree on. The cookie is no secret: it tells
// a start by the host from a start by hand.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  1,
		MagicCookieKey:   "CEPHALORUN_PLUGIN",
		MagicCookieValue: "9f0c1c52-devices",
	}
}

// Request is what the host wants to know.
type Request struct {
	// Node is the name to list devices under.
	Node string
	// DisplayReserveBytes is held back on a card with a screen.
	DisplayReserveBytes int64
	// Limit bounds each device; 0 leaves it to the plugin.
	Limit time.Duration
}

// Reply is what comes back: devices, or a failure with its class, since an
// error's identity does not travel.
type Reply struct {
	Devices []profiler.Device
	Failure failure
	Message string
}

type failure string

const (
	none      failure = ""
	noDriver  failure = "no-driver"
	cannotAsk failure = "cannot-ask"
)

func replyOf(devices []profiler.Device, err error) Reply {
	switch {
	case err == nil:
		return Reply{Devices: devices}
	case errors.Is(err, profiler.ErrNoDriver):
		return Reply{Failure: noDriver, Message: err.Error()}
	default:
		return Reply{Failure: cannotAsk, Message: err.Error()}
	}
}

// result is a reply turned back into what the plugin's provider returned.
func (r Reply) result() ([]profiler.Device, error) {
	switch r.Failure {
	case none:
		return r.Devices, nil
	case noDriver:
		return nil, &remoteError{message: r.Message, class: profiler.ErrNoDriver}
	case cannotAsk:
		return nil, &remoteError{message: r.Message, class: profiler.ErrCannotAsk}
	default:
		return nil, fmt.Errorf("%w: the plugin reports the unknown failure %q: %s", profiler.ErrCannotAsk, r.Failure, r.Message)
	}
}

// remoteError keeps the plugin's sentence and the class it belongs to.
type remoteError struct {
	message string
	class   error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.class }
