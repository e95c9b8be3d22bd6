package templates

import (
	"fmt"
	"math"
	"strings"
)

// Line is a curve: values against sizes that grow by doubling.
type Line struct {
	Title  string
	Points []LinePoint
}

// LinePoint is one size with its value; a value of 0 is left out.
type LinePoint struct {
	Size  int
	Value float64
	// Label is the value in words.
	Label string
	// Chosen marks the point that was taken.
	Chosen bool
}

// Measures of the line's part of the chart.
const (
	lineRoom   = 220.0 // with title and numbers
	lineTitle  = 24.0
	lineTop    = 40.0
	lineHeight = 140.0
)

// drawnLine is a line with its places.
type drawnLine struct {
	Title, TitleY, Right, LabelX, BottomY string
	Points                                string
	Dots                                  []dot
	Rows, Columns                         []tick
}

type dot struct {
	X, Y, Says string
	Chosen     bool
}

// drawn places the line below what takes so much height; nil if there is no line.
func (l Line) drawn(above float64) *drawnLine {
	var points []LinePoint
	most, least, largest := 0.0, math.Inf(1), 0.0
	for _, p := range l.Points {
		if p.Value > 0 {
			points = append(points, p)
			size := math.Log2(float64(max(1, p.Size)))
			most, least, largest = max(most, p.Value), min(least, size), max(largest, size)
		}
	}
	if len(points) < 2 || largest <= least {
		return nil
	}
	bottom := above + lineTop + lineHeight
	x := func(size int) float64 {
		return chartNames + chartBars*(math.Log2(float64(max(1, size)))-least)/(largest-least)
	}
	y := func(v float64) float64 { return bottom - lineHeight*v/most }
	d := &drawnLine{Title: l.Title, TitleY: px(above + lineTitle), Right: px(chartNames + chartBars), LabelX: px(chartNames - 10), BottomY: px(bottom + 18)}
	for _, v := range ticks(most) {
		d.Rows = append(d.Rows, tick{Y: px(y(v)), TextY: px(y(v) + 4), Label: plain(v)})
	}
	var places []string
	for _, p := range points {
		at := [2]string{px(x(p.Size)), px(y(p.Value))}
		places = append(places, at[0]+","+at[1])
		d.Dots = append(d.Dots, dot{X: at[0], Y: at[1], Says: fmt.Sprintf("%d: %s", p.Size, p.Label), Chosen: p.Chosen})
		if p.Size&(p.Size-1) == 0 || p.Chosen { // powers of two, so that numbers have room
			d.Columns = append(d.Columns, tick{X: at[0], Label: fmt.Sprint(p.Size)})
		}
	}
	d.Points = strings.Join(places, " ")
	return d
}
