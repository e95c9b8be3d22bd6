package templates

import (
	"bytes"
	"encoding/xml"
	"io"
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
