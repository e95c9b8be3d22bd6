package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/nvml"
	"github.com/cephalorun/cephalorun/profiler/rpc"
)

// TestMain lets the test binary be the plugin, under a link of its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == rpc.BinaryName {
		main()
	}
	os.Exit(m.Run())
}

func link(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), rpc.BinaryName)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whatever this machine has, the real library gives one of three answers:
// devices, no driver, or could not ask.
func TestTheRealDriverIsAsked(t *testing.T) {
	devices, err := rpc.Client{Path: link(t), Request: rpc.Request{Node: "here"}}.Devices(context.Background())
	switch {
	case errors.Is(err, profiler.ErrNoDriver), errors.Is(err, profiler.ErrCannotAsk) && strings.Contains(err.Error(), "NV"):
		t.Logf("this machine: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	for _, d := range devices {
		if d.Node != "here" || d.Kind != profiler.KindCUDA || d.UUID == "" && d.Problem == "" {
			t.Errorf("got %+v", d)
		}
	}
}

// The same for readings: two of them from one process.
func TestTheRealDriverIsRead(t *testing.T) {
	r := rpc.Client{Path: link(t)}.Reader()
	defer r.Close()
	for range 2 {
		readings, err := r.Readings(context.Background())
		if err != nil && !errors.Is(err, profiler.ErrNoDriver) && !errors.Is(err, profiler.ErrCannotAsk) {
			t.Fatal(err)
		}
		for _, g := range readings {
			t.Logf("%+v", g)
			if g.Problem == "" && (g.UUID == "" || g.Stale || g.At.IsZero() || g.TemperatureC < 0 || g.MemoryBytes <= 0) {
				t.Errorf("got %+v", g)
			}
		}
	}
}

func TestStartedByHand(t *testing.T) {
	var out, said bytes.Buffer
	cmd := exec.Command(link(t))
	cmd.Stdout, cmd.Stderr = &out, &said
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Fatalf("got %v", err)
	}
	if out.Len() != 0 || !strings.Contains(said.String(), "is a part of cephalorun") {
		t.Errorf("stdout %q, stderr %q", out.String(), said.String())
	}
}

func TestSourcePassesTheRequestOn(t *testing.T) {
	library := &mock.Interface{}
	p, ok := source(library, "5.15-microsoft-standard-WSL2")(rpc.Request{Node: "n", Limit: 7, DisplayReserveBytes: 9}).(nvml.Provider)
	if !ok || p.NVML != library || p.Node != "n" || p.Limit != 7 || p.DisplayReserveBytes != 9 || !p.WSL {
		t.Errorf("got %+v", p)
	}
	if kernelRelease() == "" {
		t.Log("no kernel release here")
	}
}
