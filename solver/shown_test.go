package solver

import (
	"slices"
	"testing"
)

// A rank without samples is shown one, and takes what a batch of one takes, whatever
// becomes of its activations: to the byte, and in time.
func TestARankThatIsShownOneTakesWhatOneTakes(t *testing.T) {
	p := twoDevices()
	p.ShownOne, p.Policies = true, []Policy{Keep, Recompute}
	p.Units = append(p.Units, UnitClass{Class: "root", Count: 1, Parameters: 1, TrainableParameters: 1, WholeBatch: true})
	for i := range p.Devices {
		block := p.Devices[i].Costs["block"]
		block.KeptBytesPerSample = map[Policy]float64{Keep: 40.3, Recompute: 7.4}
		p.Devices[i].Costs["block"] = block
		p.Devices[i].Costs["root"] = ClassCost{ForwardMs: Cost{Tail: Line{1, 0.5}}, BackwardMs: Cost{Points: [][2]float64{{0, 7}, {2, 9}}, Tail: Line{Slope: 4}},
			MemoryBytes: Cost{Points: [][2]float64{{2, 70.5}, {4, 90}}, Tail: Line{20, 10}}, KeptBytesPerSample: map[Policy]float64{Keep: 3.2, Recompute: 3.2}}
	}
	m, err := newModel(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range p.Policies {
		k := m.kinds[1]
		none, one := m.loadOf(k, 0, nil, policy), m.loadOf(k, 1, []cut{{1, 1}}, policy)
		if !slices.Equal(none.times, one.times) || k.room(none) != k.room(one) {
			t.Errorf("%s: none takes %v and leaves %d bytes, one takes %v and leaves %d", policy, none.times, k.room(none), one.times, k.room(one))
		}
		u := newMenu(m, k, m.overlaps(0, 0))
		u.grow(1)
		if room := u.load(&option{policy: policy, times: make([]float64, len(u.steps))}); room != k.room(one) {
			t.Errorf("%s: the search leaves %d bytes, one sample leaves %d", policy, room, k.room(one))
		}
	}
}

// What more samples cost is not changed by what none cost, however few points there are.
func TestTheCostOfNoneLeavesTheOthers(t *testing.T) {
	for name, c := range map[string]Cost{
		"no points":       {Tail: Line{2, 1}},
		"from 1 on":       {Points: [][2]float64{{1, 5}, {4, 7}}, Tail: Line{2, 0}},
		"from 3 on":       {Points: [][2]float64{{3, 5}, {4, 7}}, Tail: Line{2, 0}},
		"with one at 0":   {Points: [][2]float64{{0, 2}, {3, 5}}, Tail: Line{2, 0}},
		"with one at all": {Points: [][2]float64{{0, 2}}, Tail: Line{2, 0}},
	} {
		none := c.withNone(1000)
		if none.At(0) != 1000 {
			t.Errorf("%s: none costs %v", name, none.At(0))
		}
		for m := 1; m < 7; m++ {
			if got, want := none.At(m), c.At(m); got != want {
				t.Errorf("%s: %d cost %v, want %v", name, m, got, want)
			}
		}
	}
}
