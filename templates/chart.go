package templates

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Chart is a bar chart: one bar below the other, the longest the full width.
type Chart struct {
	Title, Subtitle string
	// Unit of the values.
	Unit string
	Bars []Bar
	// Line is drawn below the bars, if it has two points or more.
	Line Line
	// Table stands below the chart on a page.
	Table Table
}

// Bar is one bar. A value of 0 has no bar, only its label.
type Bar struct {
	Name  string
	Value float64
	Label string
	// Ours marks the bar that stands out.
	Ours bool
}

// Measures of the chart, in its own units.
const (
	chartNames  = 150.0
	chartBars   = 420.0
	chartLabels = 240.0
	chartTop    = 64.0
	chartRow    = 34.0
	chartBar    = 20.0
	chartScale  = 24.0 // for the numbers below the bars
	letterWidth = 6.6  // of the labels, nearly
)

// drawnBar is a bar with its place. Shown is as much of the label as there is room for.
type drawnBar struct {
	Bar
	X, Y, Width, Height, NameX, TextY, LabelX string
	Shown                                     string
	Cut                                       bool
}

// SVG writes the chart as a picture.
func (c Chart) SVG(w io.Writer) error { return page(w, "chart.svg.tmpl", c.drawn()) }

// HTML writes the chart and its table as a page that needs nothing from
// elsewhere.
func (c Chart) HTML(w io.Writer) error { return page(w, "chart.html.tmpl", c.drawn()) }

// drawn has the places of everything.
func (c Chart) drawn() any {
	most := 0.0
	for _, b := range c.Bars {
		most = max(most, b.Value)
	}
	var bars []drawnBar
	for i, b := range c.Bars {
		y, width := chartTop+chartRow*float64(i), 0.0
		if most > 0 && b.Value > 0 {
			width = max(1, chartBars*b.Value/most)
		}
		d := drawnBar{Bar: b, X: px(chartNames), Y: px(y), Width: px(width), Height: px(chartBar),
			NameX: px(chartNames - 10), TextY: px(y + chartBar*0.72), LabelX: px(chartNames + width + 8)}
		d.Shown, d.Cut = fitting(b.Label, chartBars+chartLabels-width-16)
		bars = append(bars, d)
	}
	bottom := chartTop + chartRow*float64(len(bars))
	width, height := chartNames+chartBars+chartLabels, bottom+8
	var scale []tick
	if most > 0 {
		height += chartScale
		for _, v := range ticks(most) {
			scale = append(scale, tick{X: px(chartNames + chartBars*v/most), Label: plain(v)})
		}
	}
	line := c.Line.drawn(height)
	if line != nil {
		height += lineRoom
	}
	return struct {
		Chart
		Drawn               []drawnBar
		Scale               []tick
		Line                *drawnLine
		Width, Height       string
		AxisX               string
		AxisTop, AxisBottom string
		ScaleY              string
	}{c, bars, scale, line, px(width), px(height), px(chartNames), px(chartTop - 6), px(bottom), px(bottom + 14)}
}

// fitting is as much of a text as so much room holds.
func fitting(text string, room float64) (shown string, cut bool) {
	runes, most := []rune(text), int(room/letterWidth)
	if len(runes) <= most {
		return text, false
	}
	return string(runes[:max(0, most-1)]) + "…", true
}

// tick is a number at an axis.
type tick struct{ X, Y, TextY, Label string }

// ticks are round numbers from 0 to at most a value, six at most.
func ticks(most float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if most/(step*part) <= 5 {
			step *= part
			break
		}
	}
	var out []float64
	for i := 0; float64(i)*step <= most*(1+1e-9); i++ {
		out = append(out, float64(i)*step)
	}
	return out
}

// plain is a round number without noise.
func plain(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// px is a length without needless digits.
func px(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
