package templates

import (
	"fmt"
	"io"
	"strings"
)

// Chart is a bar chart: one bar below the other, the longest the full width.
type Chart struct {
	Title, Subtitle string
	// Unit of the values.
	Unit string
	Bars []Bar
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
)

// drawnBar is a bar with its place.
type drawnBar struct {
	Bar
	X, Y, Width, Height, NameX, TextY, LabelX string
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
		bars = append(bars, drawnBar{Bar: b, X: px(chartNames), Y: px(y), Width: px(width), Height: px(chartBar),
			NameX: px(chartNames - 10), TextY: px(y + chartBar*0.72), LabelX: px(chartNames + width + 8)})
	}
	width, height := chartNames+chartBars+chartLabels, chartTop+chartRow*float64(len(bars))+8
	return struct {
		Chart
		Drawn         []drawnBar
		Width, Height string
		AxisX         string
		AxisTop       string
		AxisBottom    string
	}{c, bars, px(width), px(height), px(chartNames), px(chartTop - 6), px(height - 8)}
}

// px is a length without needless digits.
func px(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
