package main

import "testing"

// Where the plugin lies says nothing about what a run is to read.
func TestAPluginElsewhereReadsNoMoreGPUs(t *testing.T) {
	t.Setenv(pluginVariable, "/opt/cephalorun-nvml")
	t.Setenv(readAllVariable, "")
	if a, release := newApp(); a.readAllGPUs {
		release()
		t.Error("all GPUs are read")
	}
	t.Setenv(readAllVariable, "1")
	if a, release := newApp(); !a.readAllGPUs {
		release()
		t.Error("not all GPUs are read")
	}
}
