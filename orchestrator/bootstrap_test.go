package orchestrator

import (
	"slices"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

func TestApportion(t *testing.T) {
	cases := map[string]struct {
		weights []int64
		total   int
		want    []int
	}{
		"in proportion":         {[]int64{40, 20, 20, 20}, 1_000_000, []int{400_000, 200_000, 200_000, 200_000}},
		"thirds":                {[]int64{1, 1, 1}, 1_000_000, []int{333_334, 333_333, 333_333}},
		"nothing known":         {[]int64{0, 0}, 7, []int{4, 3}},
		"one owns everything":   {[]int64{0, 9}, 10, []int{0, 10}},
		"large remainder first": {[]int64{2, 3}, 3, []int{1, 2}},
	}
	for name, c := range cases {
		if got := apportion(c.weights, c.total); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for n := int64(1); n < 40; n++ { // whatever the weights, nothing is lost
		sum := 0
		for _, p := range apportion([]int64{n, n * n, 17, 1 << 40}, 1_000_000) {
			sum += p
		}
		if sum != 1_000_000 {
			t.Errorf("weights of %d sum to %d", n, sum)
		}
	}
}

func TestBootstrapPlanIsValid(t *testing.T) {
	devices := []profiler.Device{{UUID: "a", UsableMemoryBytes: 3 << 30}, {UUID: "b", UsableMemoryBytes: profiler.Unknown}, {UUID: "c", UsableMemoryBytes: 1 << 30}}
	if err := bootstrap(devices).Validate(); err != nil {
		t.Error(err)
	}
}
