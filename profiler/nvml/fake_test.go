package nvml

import (
	"testing"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

const gib = uint64(1) << 30

// fleet builds a library over cards of the given models. The mock leaves many
// calls empty (they panic), so all that the provider makes are filled in.
func fleet(t *testing.T, models ...gpus.Config) (*server.Server, []*server.Device) {
	t.Helper()
	s, err := server.New(server.WithGPUs(models...), server.WithDriverVersion("580.65.06"))
	if err != nil {
		t.Fatal(err)
	}
	var devices []*server.Device
	for i, d := range s.Devices {
		device := d.(*server.Device)
		device.UUID = []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}[i]
		fill(&device.Device, device.Config.MemoryMB<<20)
		devices = append(devices, device)
	}
	return s, devices
}

// fill answers as an idle card in a PCIe 4.0 x16 slot does.
func fill(d *mock.Device, total uint64) {
	d.GetMemoryInfo_v2Func = func() (api.Memory_v2, api.Return) {
		return api.Memory_v2{Total: total, Free: total - gib, Used: gib / 2, Reserved: gib / 2}, api.SUCCESS
	}
	d.GetMemoryInfoFunc = func() (api.Memory, api.Return) {
		return api.Memory{Total: total, Free: total - gib, Used: gib}, api.SUCCESS
	}
	d.GetPciInfoFunc = func() (api.PciInfo, api.Return) {
		var info api.PciInfo
		for i, ch := range "00000000:07:00.0" {
			info.BusId[i] = int8(ch)
		}
		return info, api.SUCCESS
	}
	d.GetNumGpuCoresFunc = func() (int, api.Return) { return 6912, api.SUCCESS }
	d.GetMaxClockInfoFunc = func(api.ClockType) (uint32, api.Return) { return 1410, api.SUCCESS }
	d.GetDisplayActiveFunc = func() (api.EnableState, api.Return) { return api.FEATURE_DISABLED, api.SUCCESS }
	d.GetDisplayModeFunc = func() (api.EnableState, api.Return) { return api.FEATURE_DISABLED, api.SUCCESS }
	d.GetMaxPcieLinkGenerationFunc = func() (int, api.Return) { return 4, api.SUCCESS }
	d.GetMaxPcieLinkWidthFunc = func() (int, api.Return) { return 16, api.SUCCESS }
	d.GetNvLinkStateFunc = func(int) (api.EnableState, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	d.GetP2PStatusFunc = func(api.Device, api.GpuP2PCapsIndex) (api.GpuP2PStatus, api.Return) {
		return api.P2P_STATUS_NOT_SUPPORTED, api.SUCCESS
	}
	d.GetTopologyCommonAncestorFunc = func(api.Device) (api.GpuTopologyLevel, api.Return) {
		return api.TOPOLOGY_HOSTBRIDGE, api.SUCCESS
	}
}
