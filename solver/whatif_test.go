package solver

import (
	"math"
	"strings"
	"testing"
)

func TestWithoutAndWith(t *testing.T) {
	p := twoDevices()
	p.Collectives = map[string]Collective{"block": {AllGatherMs: 3, ReduceScatterMs: 1}}
	p.Links = &Links{NodeOf: []int{0, 1}, Inside: []float64{5, 6}, Between: 2}
	less, err := p.Without(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(less.Devices) != 1 || less.Devices[0].Name != "slow" || less.Devices[0].Rank != 0 || less.Links.NodeOf[0] != 1 {
		t.Errorf("%+v", less.Devices)
	}
	if c := less.Collectives["block"]; c.AllGatherMs != 0 { // one device gathers nothing
		t.Errorf("gather %v", c.AllGatherMs)
	}
	more := p.With(p.Devices[1])
	if err := more.Validate(); err != nil {
		t.Fatal(err)
	}
	// a ring of three moves 2/3 where two move 1/2
	if c := more.Collectives["block"]; math.Abs(c.AllGatherMs-4) > 1e-12 || len(more.Devices) != 3 || len(p.Devices) != 2 {
		t.Errorf("gather %v, %d devices", c.AllGatherMs, len(more.Devices))
	}
	for _, ranks := range [][]int{{2}, {-1}, {0, 1}} {
		if _, err := p.Without(ranks...); err == nil {
			t.Errorf("without %v: no error", ranks)
		}
	}
}

func TestExplainNextBest(t *testing.T) {
	_, e := explain(t, twoDevices()) // even 38, ragged 41: see docs/planner.md
	if want := "next best: with ragged shares 41.0 ms (+7.9 %)"; e.NextBest != want {
		t.Errorf("got %q, want %q", e.NextBest, want)
	}
}

func TestExplainHelpsTheLink(t *testing.T) {
	p := twoDevices()
	p.Collectives = map[string]Collective{"block": {AllGatherMs: 500, ReduceScatterMs: 100}}
	_, e := explain(t, p)
	// 2*(500+600)+600+2 = 2802 becomes 1402
	if want := "what would help most: links twice as fast: +99.9 % samples/s"; !strings.HasPrefix(e.Help, want) {
		t.Errorf("got %q, want %q", e.Help, want)
	}
}

func TestLinksAreChecked(t *testing.T) {
	p := twoDevices()
	p.Links = &Links{NodeOf: []int{0, 7, 1}, Inside: []float64{math.NaN()}, Between: -1}
	err := p.Validate()
	for _, want := range []string{"links.node_of: want one for each of the 2 devices, got 3", "links.node_of[1]: want one of the 1 nodes, got 7", "links.inside[0]", "links.between"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
