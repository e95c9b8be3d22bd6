package templates

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
)

func someChart() Chart {
	return Chart{Title: "gpt <small>", Subtitle: "predicted samples per second", Unit: "samples/s",
		Bars: []Bar{
			{Name: "cephalo", Value: 10, Label: "10 samples/s", Ours: true},
			{Name: "even", Value: 4.25, Label: "4.25 samples/s"},
			{Name: "flashflex", Label: "does not run"},
		},
		Table: Table{Columns: []string{"strategy", "samples/s"}, Rows: [][]string{{"cephalo", "10"}, {"even", "4.25"}}}}
}

func TestGoldenChart(t *testing.T) {
	var svg, html bytes.Buffer
	if err := someChart().SVG(&svg); err != nil {
		t.Fatal(err)
	}
	if err := someChart().HTML(&html); err != nil {
		t.Fatal(err)
	}
	golden(t, "chart.svg", svg.Bytes())
	golden(t, "chart.html", html.Bytes())
}

// A reason that is longer than the picture is wide is there all the same, and numbers stand at
// the axis.
func TestChartTellsReasonsAndScale(t *testing.T) {
	reason := "does not fit: device 0 (L4) lacks " + strings.Repeat("so many bytes ", 20)
	c := Chart{Bars: []Bar{{Name: "a", Value: 3.2, Label: "3.20 samples/s"}, {Name: "b", Label: reason}}}
	c.Line = Line{Title: "by batch", Points: []LinePoint{{Size: 1}, {Size: 2, Value: 1, Label: "1.00"}, {Size: 3, Value: 2, Label: "2.00"}, {Size: 8, Value: 3, Label: "3.00", Chosen: true}}}
	var svg bytes.Buffer
	if err := c.SVG(&svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<title>" + reason + "</title>", "does not fit: device 0 (L4) lacks so many bytes", "…", ">0</text>", ">1</text>", ">3</text>", "<polyline", "8: 3.00", "by batch"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, svg.String())
		}
	}
	if n := strings.Count(svg.String(), "<circle"); n != 3 {
		t.Errorf("%d points, want 3", n)
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	for most, want := range map[float64][]float64{10: {0, 2, 4, 6, 8, 10}, 3.2: {0, 1, 2, 3}, 0.07: {0, 0.02, 0.04, 0.06}, 968: {0, 200, 400, 600, 800}, 1: {0, 0.2, 0.4, 0.6, 0.8, 1}} {
		got := ticks(most)
		for i := range max(len(got), len(want)) {
			if len(got) != len(want) || math.Abs(got[i]-want[i]) > 1e-9 {
				t.Errorf("%v: %v, want %v", most, got, want)
				break
			}
		}
	}
}

// The picture is well-formed XML, and bars are as long as their values say.
func TestChartIsAPicture(t *testing.T) {
	var svg bytes.Buffer
	if err := someChart().SVG(&svg); err != nil {
		t.Fatal(err)
	}
	var widths []string
	for d := xml.NewDecoder(&svg); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			for _, a := range e.Attr {
				if a.Name.Local == "width" {
					widths = append(widths, a.Value)
				}
			}
		}
	}
	if got := strings.Join(widths, " "); got != "100% 420 178.5" {
		t.Errorf("widths %s", got)
	}
}

func TestAChartOfNothing(t *testing.T) {
	var svg bytes.Buffer
	if err := (Chart{Title: "nothing"}).SVG(&svg); err != nil || !strings.Contains(svg.String(), "nothing") {
		t.Errorf("%v %s", err, svg.String())
	}
}
