package nvml

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"

	"github.com/cephalorun/cephalorun/profiler"
)

// works answers as a busy card does that is held back by heat.
func works(d *mock.Device) {
	d.GetTemperatureFunc = func(api.TemperatureSensors) (uint32, api.Return) { return 91, api.SUCCESS }
	d.GetPowerUsageFunc = func() (uint32, api.Return) { return 398_700, api.SUCCESS }
	d.GetClockInfoFunc = func(api.ClockType) (uint32, api.Return) { return 1200, api.SUCCESS }
	d.GetUtilizationRatesFunc = func() (api.Utilization, api.Return) { return api.Utilization{Gpu: 97}, api.SUCCESS }
	d.GetTotalEccErrorsFunc = func(api.MemoryErrorType, api.EccCounterType) (uint64, api.Return) {
		return 0, api.ERROR_NOT_SUPPORTED
	}
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, api.Return) {
		return api.ClocksThrottleReasonHwThermalSlowdown | api.ClocksThrottleReasonGpuIdle, api.SUCCESS
	}
}

func read(t *testing.T, r profiler.Reader) []profiler.Reading {
	t.Helper()
	all, err := r.Readings(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// User case 49: what a card does not tell is unknown, and never 0.
func TestUserCase49Readings(t *testing.T) {
	s, cards := fleet(t, gpus.A100_SXM4_40GB)
	works(&cards[0].Device)
	r := Provider{NVML: s}.Reader()
	got := read(t, r)[0]
	got.At = time.Time{}
	want := profiler.Reading{UUID: "GPU-a", Name: gpus.A100_SXM4_40GB.Name, TemperatureC: 91, PowerWatts: 398, ClockMHz: 1200, MaxClockMHz: 1410,
		BusyPercent: 97, ECCErrors: profiler.Unknown, MemoryBytes: int64(gpus.A100_SXM4_40GB.MemoryMB) << 20, UsedMemoryBytes: 1 << 29}
	if strings.Join(got.Throttled, ",") != "heat" {
		t.Errorf("held back by %v", got.Throttled)
	}
	got.Throttled = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	closed := 0
	s.ShutdownFunc = func() api.Return { closed++; return api.SUCCESS }
	r.Close()
	if closed != 1 {
		t.Errorf("the library was closed %d times", closed)
	}
}

// User case 47: a card stops answering. The others are read on, its numbers are kept as
// stale, and it is not asked again while it owes an answer.
func TestUserCase47ACardThatStopsAnsweringWhileItTrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cards := fleet(t, gpus.A100_SXM4_40GB, gpus.A30_PCIE_24GB)
		never := make(chan struct{})
		var hangs atomic.Bool
		var asked atomic.Int32
		for _, c := range cards {
			works(&c.Device)
		}
		cards[1].GetTemperatureFunc = func(api.TemperatureSensors) (uint32, api.Return) {
			asked.Add(1)
			if hangs.Load() {
				<-never
			}
			return 50, api.SUCCESS
		}
		s.ShutdownFunc = func() api.Return { t.Error("closed under a call"); return api.SUCCESS }
		r := Provider{NVML: s}.Reader()
		first := read(t, r)
		if first[1].Stale || first[1].TemperatureC != 50 {
			t.Fatalf("got %+v", first[1])
		}
		hangs.Store(true)
		for range 3 {
			began := time.Now()
			all := read(t, r)
			if took := time.Since(began); took > DefaultLimit {
				t.Errorf("took %s", took)
			}
			if all[0].Stale || !all[1].Stale || all[1].Problem != "does not answer within 5s" || all[1].TemperatureC != 50 || !all[1].At.Equal(first[1].At) {
				t.Errorf("got %+v", all)
			}
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
		r.Close() // does not close the library, and comes back
		hangs.Store(false)
		close(never)
		synctest.Wait()
		if again := read(t, r); again[1].Stale || again[1].Problem != "" {
			t.Errorf("it answers again: %+v", again[1])
		}
	})
}

func TestUserCase47ACardThatIsLostWhileItTrains(t *testing.T) {
	s, cards := fleet(t, gpus.A100_SXM4_40GB)
	works(&cards[0].Device)
	r := Provider{NVML: s}.Reader()
	read(t, r)
	cards[0].GetTemperatureFunc = func(api.TemperatureSensors) (uint32, api.Return) { return 0, api.ERROR_GPU_IS_LOST }
	if got := read(t, r)[0]; !got.Stale || !strings.Contains(got.Problem, "is lost") || got.TemperatureC != 91 {
		t.Errorf("got %+v", got)
	}
}
