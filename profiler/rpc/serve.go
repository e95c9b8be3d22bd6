package rpc

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
)

// watchEvery is how often the plugin looks whether its host is still there.
const watchEvery = time.Second

// Serve runs the plugin until the host says goodbye or goes away, and returns
// the exit code. Started by hand it explains itself on stderr and returns 2.
func Serve(source Source, stderr io.Writer) int {
	handshake := Handshake()
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		_, _ = fmt.Fprintf(stderr, "%s is a part of cephalorun, which starts it to ask the NVIDIA driver for devices.\nIt does nothing by itself; try: cephalorun devices\n", BinaryName)
		return 2
	}
	if host, err := strconv.Atoi(os.Getenv(hostVariable)); err == nil {
		go watchHost(host)
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         pluginSet(source),
		Logger:          hclog.New(&hclog.LoggerOptions{Name: BinaryName, Level: hclog.Info, Output: stderr, JSONFormat: true}),
	})
	return 0
}

// watchHost ends the process once its parent is another one: the host has gone.
// It does not return, since a driver call under way could keep Serve from
// returning too.
func watchHost(host int) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for os.Getppid() == host {
		<-ticker.C
	}
	endProcess()
}
