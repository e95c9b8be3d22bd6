package profiler

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestDeviceJSONKeepsUnknownApart(t *testing.T) {
	d := Device{UUID: "GPU-1", Kind: KindCUDA, MemoryBytes: 10, FreeMemoryBytes: Unknown, UsedByOthersBytes: 0, UsableMemoryBytes: Unknown}
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	if v, ok := fields["free_memory_bytes"]; !ok || v != nil {
		t.Errorf("an unknown count must be null, got %v", v)
	}
	if fields["used_by_others_bytes"] != 0.0 {
		t.Errorf("a known 0 must stay 0, got %v", fields["used_by_others_bytes"])
	}
	var back Device
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, d) {
		t.Errorf("got %+v, want %+v", back, d)
	}
}

func TestLinkString(t *testing.T) {
	cases := map[string]Link{
		"NVLink 4 x18": {Type: LinkNVLink, NVLinks: 18, NVLinkVersion: 4},
		"PCIe 4.0 x16": {Type: LinkPCIe, PCIeGeneration: 4, PCIeWidth: 16},
		"PCIe":         {Type: LinkPCIe, PCIeGeneration: Unknown, PCIeWidth: Unknown},
		"-":            {},
		"host":         {Type: LinkHost},
	}
	for want, link := range cases {
		if got := link.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestUsable(t *testing.T) {
	ok, out := Usable([]Device{{UUID: "a"}, {UUID: "b", Problem: "does not answer"}})
	if len(ok) != 1 || ok[0].UUID != "a" || len(out) != 1 || out[0].UUID != "b" {
		t.Errorf("got %v and %v", ok, out)
	}
}
