package visible

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

func card(index int, uuid, name string, major, minor, cores int) profiler.Device {
	return profiler.Device{Kind: profiler.KindCUDA, Index: index, UUID: uuid, GPUUUID: uuid, Name: name,
		Capability: profiler.Capability{major, minor}, Cores: cores, MaxClockMHz: 1000}
}

func slice(index int, uuid, parent string) profiler.Device {
	return profiler.Device{Kind: profiler.KindCUDA, Index: index, UUID: uuid, GPUUUID: parent, Name: "A100", MIG: true}
}

func same() []profiler.Device {
	return []profiler.Device{
		card(0, "GPU-8932f937-d72c", "A100", 8, 0, 6912), card(1, "GPU-8932aaaa-0001", "A100", 8, 0, 6912),
		card(2, "GPU-1f00c0de-0002", "A100", 8, 0, 6912), {Kind: profiler.KindCPU, UUID: "CPU-x"},
	}
}

func mixedCards() []profiler.Device {
	return []profiler.Device{card(0, "GPU-t4", "Tesla T4", 7, 5, 2560), card(1, "GPU-h100", "H100", 9, 0, 16896), card(2, "GPU-a30", "A30", 8, 0, 3584)}
}

func sliced() []profiler.Device {
	return []profiler.Device{slice(0, "MIG-aaaa-1", "GPU-p"), slice(0, "MIG-aaab-2", "GPU-p"), slice(1, "MIG-GPU-q/1/0", "GPU-q")}
}

func uuids(devices []profiler.Device) []string {
	out := []string{}
	for _, d := range devices {
		out = append(out, d.UUID)
	}
	return out
}

// User case 45: every form that the variable may have.
func TestUserCase45Resolve(t *testing.T) {
	set := func(v string) Environment { return Environment{Devices: v, Set: true} }
	pci := func(v string) Environment { return Environment{Devices: v, Set: true, Order: "PCI_BUS_ID"} }
	cases := map[string]struct {
		env     Environment
		devices []profiler.Device
		want    []string
		note    string
		err     []string
	}{
		"unset means all":             {env: Environment{}, devices: same(), want: []string{"GPU-8932f937-d72c", "GPU-8932aaaa-0001", "GPU-1f00c0de-0002"}},
		"empty means none":            {env: set(""), devices: same(), want: []string{}},
		"spaces only mean none":       {env: set("  "), devices: same(), want: []string{}},
		"no device file means none":   {env: set("NoDevFiles"), devices: same(), want: []string{}},
		"indexes in the given order":  {env: set("2,0"), devices: same(), want: []string{"GPU-1f00c0de-0002", "GPU-8932f937-d72c"}},
		"spaces around entries":       {env: set(" 1 , 2 "), devices: same(), want: []string{"GPU-8932aaaa-0001", "GPU-1f00c0de-0002"}},
		"-1 ends the list":            {env: set("1,-1,0"), devices: same(), want: []string{"GPU-8932aaaa-0001"}},
		"-1 alone":                    {env: set("-1"), devices: same(), want: []string{}},
		"nothing after -1 is checked": {env: set("0,-1,nonsense"), devices: same(), want: []string{"GPU-8932f937-d72c"}},
		"whole UUID":                  {env: set("GPU-1f00c0de-0002"), devices: same(), want: []string{"GPU-1f00c0de-0002"}},
		"unique beginning":            {env: set("GPU-1f,GPU-8932a"), devices: same(), want: []string{"GPU-1f00c0de-0002", "GPU-8932aaaa-0001"}},
		"letters in the other case":   {env: set("gpu-1F00"), devices: same(), want: []string{"GPU-1f00c0de-0002"}},
		"index and UUID together":     {env: set("0,GPU-1f"), devices: same(), want: []string{"GPU-8932f937-d72c", "GPU-1f00c0de-0002"}},
		"ambiguous beginning":         {env: set("GPU-89"), devices: same(), err: []string{"GPU-89 matches 2 devices"}},
		"unknown UUID":                {env: set("GPU-77"), devices: same(), err: []string{"GPU-77 matches no device: this machine has 3 GPUs, 0 to 2"}},
		"index too high":              {env: set("3"), devices: same(), err: []string{"there is no GPU 3: this machine has 3 GPUs, 0 to 2"}},
		"one GPU only":                {env: set("3"), devices: same()[:1], err: []string{"has one GPU, number 0, GPU-8932f937-d72c"}},
		"no GPU at all":               {env: set("0"), devices: nil, err: []string{"there is no GPU 0: this machine has no GPU"}},
		"index twice":                 {env: set("0,1,0"), devices: same(), err: []string{"entry 3: 0 names GPU 0 A100 a second time (first as 0)"}},
		"index and UUID of one":       {env: set("2,GPU-1f"), devices: same(), err: []string{"entry 2: GPU-1f names GPU 2 A100 a second time (first as 2)"}},
		"extra comma":                 {env: set("0,,1"), devices: same(), err: []string{"entry 2: is empty: remove the extra comma"}},
		"other negative number":       {env: set("-2"), devices: same(), err: []string{`"-2" is neither an index nor`}},
		"text":                        {env: set("cuda:0"), devices: same(), err: []string{`"cuda:0" is neither an index nor`}},
		"all problems at once":        {env: set("9,x,GPU-89"), devices: same(), err: []string{"3 problems", "entry 1: there is no GPU 9", `entry 2: "x"`, "entry 3: GPU-89"}},
		"mixed cards count fastest first": {env: set("0,2"), devices: mixedCards(), want: []string{"GPU-h100", "GPU-t4"},
			note: "fastest first (0 = H100, 1 = A30, 2 = Tesla T4)"},
		"mixed cards in bus order":      {env: pci("0,2"), devices: mixedCards(), want: []string{"GPU-t4", "GPU-a30"}},
		"mixed cards by UUID":           {env: set("GPU-t4,GPU-h"), devices: mixedCards(), want: []string{"GPU-t4", "GPU-h100"}},
		"unset, mixed, in CUDA's order": {env: Environment{}, devices: mixedCards(), want: []string{"GPU-h100", "GPU-a30", "GPU-t4"}},
		"unset, mixed, bus order":       {env: Environment{Order: "PCI_BUS_ID"}, devices: mixedCards(), want: []string{"GPU-t4", "GPU-h100", "GPU-a30"}},
		"slice by UUID":                 {env: set("MIG-aaab-2"), devices: sliced(), want: []string{"MIG-aaab-2"}},
		"slice by beginning":            {env: set("MIG-aaab"), devices: sliced(), want: []string{"MIG-aaab-2"}},
		"ambiguous slice":               {env: set("MIG-aaa"), devices: sliced(), err: []string{"MIG-aaa matches 2 devices"}},
		"slice in the older form":       {env: set("MIG-GPU-q/1/0"), devices: sliced(), want: []string{"MIG-GPU-q/1/0"}},
		"sliced GPU by index":           {env: set("0"), devices: sliced(), want: []string{"MIG-aaaa-1"}, note: "0 is cut into 2 MIG slices"},
		"sliced GPU by UUID":            {env: set("GPU-p,1"), devices: sliced(), want: []string{"MIG-aaaa-1", "MIG-GPU-q/1/0"}, note: "GPU-p is cut into 2 MIG slices"},
		"unset, all slices":             {env: Environment{}, devices: sliced(), want: []string{"MIG-aaaa-1", "MIG-aaab-2", "MIG-GPU-q/1/0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(c.env, c.devices)
			if len(c.err) > 0 {
				if !errors.Is(err, profiler.ErrInvalid) {
					t.Fatalf("got %v, %v; want an ErrInvalid", uuids(got.Devices), err)
				}
				for _, want := range c.err {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("message lacks %q: %v", want, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(uuids(got.Devices), c.want) {
				t.Errorf("got %v, want %v", uuids(got.Devices), c.want)
			}
			notes := strings.Join(got.Notes, "\n")
			if c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

func TestOrderNoteForUnsetVariable(t *testing.T) {
	s, err := Resolve(Environment{}, mixedCards())
	if err != nil || s.OrderNote == "" || len(s.Notes) != 0 {
		t.Errorf("positions rest on an assumption that nobody has used yet: %+v, %v", s, err)
	}
	s, err = Resolve(Environment{}, same())
	if err != nil || s.OrderNote != "" {
		t.Errorf("equal cards need no assumption: %+v, %v", s, err)
	}
}

func TestFromEnviron(t *testing.T) {
	cases := map[string]struct {
		environ []string
		want    Environment
	}{
		"nothing":       {nil, Environment{}},
		"empty":         {[]string{"CUDA_VISIBLE_DEVICES="}, Environment{Set: true}},
		"both":          {[]string{"A=1", "CUDA_VISIBLE_DEVICES=0,1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, Environment{Devices: "0,1", Set: true, Order: "PCI_BUS_ID"}},
		"last one wins": {[]string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"}, Environment{Devices: "1", Set: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := FromEnviron(c.environ); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
