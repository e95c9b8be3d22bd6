package templates

import "io"

// Report is the content of the closing report's page: texts, already formatted.
type Report struct {
	Title   string
	Summary []Fact
	Ranks   Table
	// Losses are the points of the loss curve, in order; fewer than two draw none.
	Losses  []float64
	Failure string
}

// Fact is one line of the summary.
type Fact struct{ Name, Value string }

// Table is a table with a heading for each column.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Page writes the report as a page that needs nothing from elsewhere.
func Page(w io.Writer, r Report) error {
	return page(w, "report.html.tmpl", struct {
		Report
		Curve string
	}{r, curve(r.Losses)})
}
