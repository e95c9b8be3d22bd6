package rpc

import (
	"context"
	"net/rpc"
	"sync"

	"github.com/hashicorp/go-plugin"

	"github.com/cephalorun/cephalorun/profiler"
)

// Source makes the provider that answers one request.
type Source func(Request) profiler.Provider

// devicesPlugin is both sides for go-plugin; the host's has no source.
type devicesPlugin struct{ source Source }

var _ plugin.Plugin = devicesPlugin{}

// Server implements plugin.Plugin.
func (p devicesPlugin) Server(*plugin.MuxBroker) (any, error) {
	return &server{source: p.source}, nil
}

// Client implements plugin.Plugin: the bare connection, which the host calls
// with a limit.
func (p devicesPlugin) Client(_ *plugin.MuxBroker, c *rpc.Client) (any, error) { return c, nil }

func pluginSet(source Source) plugin.PluginSet {
	return plugin.PluginSet{pluginName: devicesPlugin{source: source}}
}

// server answers calls; its exported methods are the protocol.
type server struct {
	source Source

	mu     sync.Mutex
	reader profiler.Reader // nil until the first reading
}

// readable is a provider whose devices can be read again and again.
type readable interface{ Reader() profiler.Reader }

// Readings is called by the host.
func (s *server) Readings(request Request, out *Numbers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil {
		provider, ok := s.source(request).(readable)
		if !ok {
			out.Failure, out.Message = cannotAsk, "this plugin has no readings"
			return nil
		}
		s.reader = provider.Reader()
	}
	readings, err := s.reader.Readings(context.Background())
	out.Readings = readings
	out.Failure, out.Message = failureOf(err)
	return nil
}

// Devices is called by the host. Limits are the provider's and the host's own.
func (s *server) Devices(request Request, out *Reply) error {
	devices, err := s.source(request).Devices(context.Background())
	*out = replyOf(devices, err)
	return nil
}
