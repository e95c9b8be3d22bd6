package solver

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

var growth = flag.String("growth", "", "measure how the planner's time grows and draw it into this file (SVG)")

// curve is one line of the plot.
type curve struct {
	name, colour string
	points       [][2]float64 // (devices or batch, milliseconds)
}

// TestGrowth draws docs/planner-growth.svg:
//
//	go test ./solver -run Growth -growth ../docs/planner-growth.svg
//
// Without the flag it solves the smallest sizes only and draws nothing.
func TestGrowth(t *testing.T) {
	devices, batches, repeat := []int{8, 16}, []int{64, 128}, 1
	if *growth != "" {
		devices, batches, repeat = []int{8, 16, 32, 64, 128, 256, 512, 1024}, []int{128, 256, 512, 1024, 2048, 4096, 8192, 16384}, 3
	}
	byDevices := []curve{{name: "3 kinds, 1 class", colour: "#1a7f5a"}, {name: "3 kinds, 3 classes", colour: "#2f6db5"}, {name: "all different, 1 class", colour: "#b3261e"}}
	byBatch := []curve{{name: "1 class", colour: "#1a7f5a"}, {name: "2 classes", colour: "#8a6d00"}, {name: "3 classes", colour: "#2f6db5"}}
	for _, n := range devices {
		add := func(c *curve, f fleet) {
			f.devices, f.batch, f.memory = n, 16*n, 4
			c.points = append(c.points, [2]float64{float64(n), f.milliseconds(t, repeat)})
		}
		add(&byDevices[0], fleet{kinds: 3, classes: 1})
		add(&byDevices[1], fleet{kinds: 3, classes: 3})
		if n <= 256 {
			add(&byDevices[2], fleet{kinds: n, classes: 1})
		}
	}
	for _, b := range batches {
		for i := range byBatch {
			f := fleet{devices: 64, kinds: 3, batch: b, memory: 16, classes: i + 1}
			byBatch[i].points = append(byBatch[i].points, [2]float64{float64(b), f.milliseconds(t, repeat)})
		}
	}
	if *growth == "" {
		return
	}
	svg := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 340" width="900" height="340" font-family="system-ui, sans-serif" font-size="12">` +
		"\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" +
		plot(70, "devices (16 samples each)", byDevices) + plot(530, "global batch (64 devices of 3 kinds)", byBatch) + "</svg>\n"
	if err := os.WriteFile(*growth, []byte(svg), 0o644); err != nil {
		t.Fatal(err)
	}
}

// milliseconds is the least processor time of some runs.
func (f fleet) milliseconds(t *testing.T, repeat int) float64 {
	t.Helper()
	f.policies, f.seed = []Policy{Keep, Recompute}, 1
	p, least := f.problem(), math.Inf(1)
	for range repeat {
		start := cpuTime(t)
		if _, err := Solve(p); err != nil {
			t.Fatal(err)
		}
		least = min(least, float64((cpuTime(t)-start).Microseconds())/1000)
	}
	return max(least, 0.1)
}

// plot draws curves on two logarithmic axes, x to the right from left.
func plot(left float64, label string, curves []curve) string {
	const width, height, top = 340.0, 240.0, 30.0
	low, high := math.Inf(1), 0.0
	for _, c := range curves {
		for _, p := range c.points {
			low, high = min(low, p[0]), max(high, p[0])
		}
	}
	x := func(v float64) float64 { return left + width*math.Log(v/low)/math.Log(high/low) }
	y := func(ms float64) float64 { return top + height*(1-math.Log10(ms)/4) }
	var b strings.Builder
	for ms := 1.0; ms <= 1e4; ms *= 10 {
		fmt.Fprintf(&b, "<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" stroke=\"#d5d9de\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%g ms</text>\n", left, y(ms), left+width, y(ms), left-5, y(ms)+4, ms)
	}
	for v := low; v <= high; v *= 2 {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%g</text>\n", x(v), top+height+16, v)
	}
	fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", left+width/2, top+height+36, label)
	for i, c := range curves {
		var points []string
		for _, p := range c.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p[0]), y(max(p[1], 1))))
		}
		fmt.Fprintf(&b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s</text>\n",
			c.colour, strings.Join(points, " "), left+10, top+12+16*float64(i), c.colour, c.name)
	}
	return b.String()
}
