package main

import "testing"

// Where the plugin lies says nothing about what a run is to read.
func TestAPluginElsewhereReadsNoMoreGPUs(t *testing.T) {
	t.Setenv(pluginVariable, "/opt/cephalorun-nvml")
	for value, want := range map[string]bool{"": false, "1": true} {
		t.Setenv(readAllVariable, value)
		a, release := newApp()
		defer release()
		if a.readAllGPUs != want {
			t.Errorf("%s=%q: all GPUs are read: %v", readAllVariable, value, a.readAllGPUs)
		}
	}
}
