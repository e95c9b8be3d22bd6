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
	reading    = "Plugin.Readings"
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

// Numbers is what comes back of a reading.
type Numbers struct {
	Readings []profiler.Reading
	Failure  failure
	Message  string
}

type failure string

const (
	none      failure = ""
	noDriver  failure = "no-driver"
	cannotAsk failure = "cannot-ask"
)

func replyOf(devices []profiler.Device, err error) Reply {
	f, message := failureOf(err)
	if f != none {
		devices = nil
	}
	return Reply{Devices: devices, Failure: f, Message: message}
}

func failureOf(err error) (failure, string) {
	switch {
	case err == nil:
		return none, ""
	case errors.Is(err, profiler.ErrNoDriver):
		return noDriver, err.Error()
	default:
		return cannotAsk, err.Error()
	}
}

// result is a reply turned back into what the plugin's provider returned.
func (r Reply) result() ([]profiler.Device, error) { return r.Devices, r.Failure.err(r.Message) }

// err is a failure turned back into an error.
func (f failure) err(message string) error {
	switch f {
	case none:
		return nil
	case noDriver:
		return &remoteError{message: message, class: profiler.ErrNoDriver}
	case cannotAsk:
		return &remoteError{message: message, class: profiler.ErrCannotAsk}
	default:
		return fmt.Errorf("%w: the plugin reports the unknown failure %q: %s", profiler.ErrCannotAsk, f, message)
	}
}

// remoteError keeps the plugin's sentence and the class it belongs to.
type remoteError struct {
	message string
	class   error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.class }
