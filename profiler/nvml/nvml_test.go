package nvml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"

	"github.com/cephalorun/cephalorun/profiler"
)

func list(t *testing.T, p Provider) []profiler.Device {
	t.Helper()
	devices, err := p.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// User case 50: what others hold is what is in use. No process is asked for, since ids mean
// nothing in a container: the stand-in would panic.
func TestUserCase50MixedFleet(t *testing.T) {
	s, _ := fleet(t, gpus.A100_SXM4_40GB, gpus.H100_SXM5_80GB, gpus.A30_PCIE_24GB)
	closed := 0
	s.ShutdownFunc = func() api.Return { closed++; return api.SUCCESS }
	devices := list(t, Provider{NVML: s, Node: "n1", DisplayReserveBytes: DefaultDisplayReserveBytes})
	if len(devices) != 3 || closed != 1 {
		t.Fatalf("got %d devices, library closed %d times", len(devices), closed)
	}
	want := profiler.Device{
		UUID: "GPU-b", GPUUUID: "GPU-b", Name: gpus.H100_SXM5_80GB.Name, Kind: profiler.KindCUDA, Node: "n1", Index: 1,
		PCIBusID: "00000000:07:00.0", Driver: "580.65.06", Capability: profiler.Capability{9, 0},
		DTypes:      []profiler.DType{profiler.BFloat16, profiler.Float16, profiler.Float32},
		MemoryBytes: int64(gpus.H100_SXM5_80GB.MemoryMB) << 20, UsedByOthersBytes: 1 << 29, Cores: 6912, MaxClockMHz: 1410,
		Link: profiler.Link{Type: profiler.LinkPCIe, PCIeGeneration: 4, PCIeWidth: 16, Peers: []profiler.Peer{{UUID: "GPU-a", Path: "host-bridge"}, {UUID: "GPU-c", Path: "host-bridge"}}},
	}
	want.FreeMemoryBytes = want.MemoryBytes - 1<<30
	want.UsableMemoryBytes = want.FreeMemoryBytes
	if !reflect.DeepEqual(devices[1], want) {
		t.Errorf("got  %+v\nwant %+v", devices[1], want)
	}
	if devices[2].Capability != (profiler.Capability{8, 0}) || devices[2].Index != 2 {
		t.Errorf("got %+v", devices[2])
	}
}

// User case 47: a card that never answers costs one limit, and the others are listed.
func TestUserCase47OneCardHangs(t *testing.T) {
	for name, hang := range map[string]func(d *mock.Device, block func()){
		"at once": func(d *mock.Device, block func()) {
			d.GetUUIDFunc = func() (string, api.Return) { block(); return "", 0 }
		},
		"half-way": func(d *mock.Device, block func()) {
			d.GetMemoryInfo_v2Func = func() (api.Memory_v2, api.Return) { block(); return api.Memory_v2{}, 0 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, cards := fleet(t, gpus.A100_SXM4_40GB, gpus.H100_SXM5_80GB, gpus.A30_PCIE_24GB)
				never := make(chan struct{})
				defer close(never)
				hang(&cards[1].Device, func() { <-never })
				s.ShutdownFunc = func() api.Return {
					t.Error("the library was closed under a call")
					return api.SUCCESS
				}
				start := time.Now()
				devices := list(t, Provider{NVML: s})
				if took := time.Since(start); took != DefaultLimit {
					t.Errorf("took %s, want one limit of %s", took, DefaultLimit)
				}
				usable, out := profiler.Usable(devices)
				if len(usable) != 2 || len(out) != 1 || out[0].Index != 1 || out[0].Problem != "does not answer within 5s" {
					t.Fatalf("got %+v and %+v", usable, out)
				}
				if name == "half-way" && (out[0].UUID != "GPU-b" || out[0].Name == "" || out[0].MemoryBytes != profiler.Unknown) {
					t.Errorf("what it had told is lost: %+v", out[0])
				}
				if usable[0].Link.Peers[0].UUID != "GPU-c" {
					t.Errorf("the others' paths: %+v", usable[0].Link)
				}
			})
		})
	}
}

func TestDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := fleet(t, gpus.A100_SXM4_40GB)
		never := make(chan struct{})
		defer close(never)
		s.InitFunc = func() api.Return { <-never; return api.ERROR_UNKNOWN }
		_, err := Provider{NVML: s}.Devices(context.Background())
		if !errors.Is(err, profiler.ErrCannotAsk) || !strings.Contains(err.Error(), "does not answer within 5s") {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err = (Provider{NVML: s}).Devices(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("the context does not end it: %v", err)
		}
	})
}

func TestPathsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cards := fleet(t, gpus.A100_SXM4_40GB, gpus.A100_SXM4_40GB)
		never := make(chan struct{})
		defer close(never)
		s.ShutdownFunc = func() api.Return { t.Error("closed under a call"); return api.SUCCESS }
		cards[0].GetP2PStatusFunc = func(api.Device, api.GpuP2PCapsIndex) (api.GpuP2PStatus, api.Return) {
			<-never
			return 0, api.ERROR_UNKNOWN
		}
		if usable, _ := profiler.Usable(list(t, Provider{NVML: s})); len(usable) != 2 || len(usable[0].Link.Peers) != 0 {
			t.Errorf("got %+v", usable)
		}
	})
}

func TestContextEndsTheListing(t *testing.T) {
	s, _ := fleet(t, gpus.A100_SXM4_40GB)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := (Provider{NVML: s}).Devices(ctx); !errors.Is(err, profiler.ErrCannotAsk) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// User case 49: "not supported" is unknown, and never 0.
func TestUserCase49UnsupportedIsUnknown(t *testing.T) {
	s, cards := fleet(t, gpus.A100_SXM4_40GB)
	d := &cards[0].Device
	d.GetMemoryInfo_v2Func = func() (api.Memory_v2, api.Return) { return api.Memory_v2{}, api.ERROR_NOT_SUPPORTED }
	d.GetMemoryInfoFunc = func() (api.Memory, api.Return) { return api.Memory{}, api.ERROR_NOT_SUPPORTED }
	d.GetNumGpuCoresFunc = func() (int, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	d.GetMaxClockInfoFunc = func(api.ClockType) (uint32, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	d.GetMaxPcieLinkGenerationFunc = func() (int, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	d.GetMaxPcieLinkWidthFunc = func() (int, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	d.GetDisplayActiveFunc = func() (api.EnableState, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	d.GetDisplayModeFunc = func() (api.EnableState, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	d.GetCudaComputeCapabilityFunc = func() (int, int, api.Return) { return 0, 0, api.ERROR_NOT_SUPPORTED }
	d.GetMigModeFunc = func() (int, int, api.Return) { return 0, 0, api.ERROR_NOT_SUPPORTED }
	s.SystemGetDriverVersionFunc = func() (string, api.Return) { return "", api.ERROR_UNKNOWN }
	got := list(t, Provider{NVML: s})[0]
	if got.Problem != "" || got.MemoryBytes != profiler.Unknown || got.FreeMemoryBytes != profiler.Unknown || got.UsableMemoryBytes != profiler.Unknown ||
		got.UsedByOthersBytes != profiler.Unknown || got.Cores != profiler.Unknown || got.MaxClockMHz != profiler.Unknown ||
		got.Link.String() != "-" || got.Capability.Known() || got.Display || !got.UnifiedMemory || got.Driver != "" {
		t.Errorf("got %+v", got)
	}
	shared := profiler.ShareHostMemory([]profiler.Device{got}, 100, 60)[0]
	if shared.MemoryBytes != 100 || shared.UsableMemoryBytes != 60 || shared.UsedByOthersBytes != 40 {
		t.Errorf("got %+v", shared)
	}
}

func TestOldLibraryIsNotAskedNewQuestions(t *testing.T) {
	s, cards := fleet(t, gpus.A100_SXM4_40GB)
	s.LookupSymbolFunc = func(string) error { return errors.New("undefined symbol") }
	d := &cards[0].Device
	d.GetMemoryInfo_v2Func, d.GetNumGpuCoresFunc, d.GetMigModeFunc = nil, nil, nil // would panic
	got := list(t, Provider{NVML: s})[0]
	if got.Problem != "" || got.UsedByOthersBytes != int64(gib) || got.Cores != profiler.Unknown {
		t.Errorf("got %+v", got)
	}
}

func TestLostCards(t *testing.T) {
	cases := map[string]struct {
		ret  api.Return
		want string
	}{
		"lost":       {api.ERROR_GPU_IS_LOST, "is lost"},
		"reset":      {api.ERROR_RESET_REQUIRED, "needs a reset"},
		"permission": {api.ERROR_NO_PERMISSION, "may not be used by this user"},
		"other":      {api.ERROR_UNKNOWN, "cannot be used: open it: ERROR_UNKNOWN"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, cards := fleet(t, gpus.A100_SXM4_40GB, gpus.A30_PCIE_24GB)
			s.DeviceGetHandleByIndexFunc = func(i int) (api.Device, api.Return) {
				if i == 0 {
					return nil, c.ret
				}
				return cards[i], api.SUCCESS
			}
			usable, out := profiler.Usable(list(t, Provider{NVML: s}))
			if len(usable) != 1 || len(out) != 1 || !strings.Contains(out[0].Problem, c.want) || out[0].MemoryBytes != profiler.Unknown {
				t.Errorf("got %+v and %+v", usable, out)
			}
		})
	}
	for name, lose := range map[string]func(d *mock.Device){
		"at the UUID":   func(d *mock.Device) { d.GetUUIDFunc = func() (string, api.Return) { return "", api.ERROR_GPU_IS_LOST } },
		"at the name":   func(d *mock.Device) { d.GetNameFunc = func() (string, api.Return) { return "", api.ERROR_GPU_IS_LOST } },
		"at the memory": func(d *mock.Device) { d.GetMemoryInfo_v2Func = nil; d.GetMemoryInfoFunc = nil; lostMemory(d) },
	} {
		t.Run(name, func(t *testing.T) {
			s, cards := fleet(t, gpus.A100_SXM4_40GB)
			lose(&cards[0].Device)
			if got := list(t, Provider{NVML: s}); len(got) != 1 || !strings.Contains(got[0].Problem, "is lost") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func lostMemory(d *mock.Device) {
	d.GetMemoryInfo_v2Func = func() (api.Memory_v2, api.Return) { return api.Memory_v2{}, api.ERROR_GPU_IS_LOST }
	d.GetMemoryInfoFunc = func() (api.Memory, api.Return) { return api.Memory{}, api.ERROR_GPU_IS_LOST }
}

// User cases 52 and 54: more is held back under WSL, and on a card with a screen.
func TestUserCase54Reserves(t *testing.T) {
	cases := map[string]struct {
		active, connected api.EnableState
		wsl               bool
		want              int64
	}{
		"no screen":           {},
		"screen in use":       {active: api.FEATURE_ENABLED, want: 1 << 30},
		"screen connected":    {connected: api.FEATURE_ENABLED, want: 1 << 30},
		"under WSL":           {wsl: true, want: int64(gpus.A30_PCIE_24GB.MemoryMB) << 20 * 15 / 100},
		"under WSL, a screen": {wsl: true, active: api.FEATURE_ENABLED, want: int64(gpus.A30_PCIE_24GB.MemoryMB) << 20 * 15 / 100},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, cards := fleet(t, gpus.A30_PCIE_24GB)
			cards[0].GetDisplayActiveFunc = func() (api.EnableState, api.Return) { return c.active, api.SUCCESS }
			cards[0].GetDisplayModeFunc = func() (api.EnableState, api.Return) { return c.connected, api.SUCCESS }
			d := list(t, Provider{NVML: s, DisplayReserveBytes: DefaultDisplayReserveBytes, WSL: c.wsl})[0]
			if d.ReserveBytes != c.want || d.UsableMemoryBytes != d.FreeMemoryBytes-c.want {
				t.Errorf("got reserve %d, usable %d of %d free; want %d", d.ReserveBytes, d.UsableMemoryBytes, d.FreeMemoryBytes, c.want)
			}
		})
	}
}

func TestUserCase52UnderWSL(t *testing.T) {
	cases := map[string]bool{"5.15.153.1-microsoft-standard-WSL2": true, "4.4.0-19041-Microsoft": true, "6.8.0-45-generic": false, "": false}
	for release, want := range cases {
		if UnderWSL(release) != want {
			t.Errorf("%q: want %v", release, want)
		}
	}
}

func TestNVLink(t *testing.T) {
	s, cards := fleet(t, gpus.H100_SXM5_80GB, gpus.H100_SXM5_80GB)
	for _, c := range cards {
		c.GetNvLinkStateFunc = func(link int) (api.EnableState, api.Return) {
			if link >= 18 {
				return 0, api.ERROR_INVALID_ARGUMENT
			}
			if link == 3 {
				return api.FEATURE_DISABLED, api.SUCCESS
			}
			return api.FEATURE_ENABLED, api.SUCCESS
		}
		c.GetNvLinkVersionFunc = func(int) (uint32, api.Return) { return 4, api.SUCCESS }
		c.GetP2PStatusFunc = func(api.Device, api.GpuP2PCapsIndex) (api.GpuP2PStatus, api.Return) {
			return api.P2P_STATUS_OK, api.SUCCESS
		}
	}
	d := list(t, Provider{NVML: s})[0]
	if d.Link.String() != "NVLink 4 x17" || d.Link.PCIeGeneration != 4 || !reflect.DeepEqual(d.Link.Peers, []profiler.Peer{{UUID: "GPU-b", Path: "nvlink"}}) {
		t.Errorf("got %+v", d.Link)
	}
}

func TestTopologyNames(t *testing.T) {
	cases := map[api.GpuTopologyLevel]string{
		api.TOPOLOGY_INTERNAL: "board", api.TOPOLOGY_SINGLE: "switch", api.TOPOLOGY_MULTIPLE: "switches",
		api.TOPOLOGY_HOSTBRIDGE: "host-bridge", api.TOPOLOGY_NODE: "numa", api.TOPOLOGY_SYSTEM: "system", 77: "",
	}
	for level, want := range cases {
		_, cards := fleet(t, gpus.A30_PCIE_24GB, gpus.A30_PCIE_24GB)
		cards[0].GetTopologyCommonAncestorFunc = func(api.Device) (api.GpuTopologyLevel, api.Return) { return level, api.SUCCESS }
		if got := pathBetween(cards[0], cards[1]); got != want {
			t.Errorf("level %d: got %q, want %q", level, got, want)
		}
	}
}

func TestMIG(t *testing.T) {
	s, cards := fleet(t, gpus.A100_SXM4_40GB, gpus.A30_PCIE_24GB)
	cards[0].MigMode = api.DEVICE_MIG_ENABLE
	cards[0].GetMaxMigDeviceCountFunc = func() (int, api.Return) { return 7, api.SUCCESS }
	cards[0].GetMigDeviceHandleByIndexFunc = func(i int) (api.Device, api.Return) {
		if i != 0 && i != 2 {
			return nil, api.ERROR_NOT_FOUND
		}
		slice := &mock.Device{}
		fill(slice, 5*gib)
		slice.GetUUIDFunc = func() (string, api.Return) { return []string{"MIG-0", "", "MIG-2"}[i], api.SUCCESS }
		slice.GetNameFunc = func() (string, api.Return) { return "NVIDIA A100 MIG 1g.5gb", api.SUCCESS }
		return slice, api.SUCCESS
	}
	devices := list(t, Provider{NVML: s})
	if len(devices) != 3 {
		t.Fatalf("two slices and one GPU: %+v", devices)
	}
	d := devices[1]
	if d.UUID != "MIG-2" || d.GPUUUID != "GPU-a" || !d.MIG || d.Index != 0 || d.MemoryBytes != int64(5*gib) || d.Capability != (profiler.Capability{8, 0}) || !strings.Contains(d.Name, "1g.5gb") {
		t.Errorf("got %+v", d)
	}
	cards[0].GetMigDeviceHandleByIndexFunc = func(int) (api.Device, api.Return) { return nil, api.ERROR_NOT_FOUND }
	if d := list(t, Provider{NVML: s})[0]; !strings.Contains(d.Problem, "is in MIG mode but has no slices") {
		t.Errorf("got %+v", d)
	}
	cards[0].GetMaxMigDeviceCountFunc = func() (int, api.Return) { return 0, api.ERROR_UNKNOWN }
	if d := list(t, Provider{NVML: s})[0]; !strings.Contains(d.Problem, "count its MIG slices") {
		t.Errorf("got %+v", d)
	}
}

func TestInitFailures(t *testing.T) {
	cases := map[string]struct {
		ret  api.Return
		card bool
		want error
		text string
	}{
		"no library":                 {api.ERROR_LIBRARY_NOT_FOUND, false, profiler.ErrNoDriver, "libnvidia-ml.so.1 was not found"},
		"no library, but a card":     {api.ERROR_LIBRARY_NOT_FOUND, true, profiler.ErrNoDriver, "its driver is not installed"},
		"not loaded and no card":     {api.ERROR_DRIVER_NOT_LOADED, false, profiler.ErrNoDriver, "there is no NVIDIA card"},
		"not loaded although a card": {api.ERROR_DRIVER_NOT_LOADED, true, profiler.ErrCannotAsk, "its kernel driver is not loaded"},
		"two versions":               {api.ERROR_LIB_RM_VERSION_MISMATCH, true, profiler.ErrCannotAsk, "of different versions"},
		"anything else":              {api.ERROR_UNKNOWN, false, profiler.ErrCannotAsk, "start NVML"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if c.card {
				bus := filepath.Join(root, "sys/bus/pci/devices/0000:07:00.0")
				if err := os.MkdirAll(bus, 0o755); err != nil {
					t.Fatal(err)
				}
				for file, content := range map[string]string{"vendor": "0x10de\n", "class": "0x030200\n"} {
					if err := os.WriteFile(filepath.Join(bus, file), []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			s, _ := fleet(t, gpus.A30_PCIE_24GB)
			s.InitFunc = func() api.Return { return c.ret }
			_, err := Provider{NVML: s, Root: root}.Devices(context.Background())
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || errors.Is(err, profiler.ErrNoDriver) && errors.Is(err, profiler.ErrCannotAsk) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
	s, _ := fleet(t)
	if devices := list(t, Provider{NVML: s}); len(devices) != 0 {
		t.Errorf("a driver without cards: %+v", devices)
	}
	s.DeviceGetCountFunc = func() (int, api.Return) { return 0, api.ERROR_UNKNOWN }
	if _, err := (Provider{NVML: s}).Devices(context.Background()); !errors.Is(err, profiler.ErrCannotAsk) {
		t.Errorf("got %v", err)
	}
}
