package show

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// table lays out columns: the first ones named in left to the left, the others to the
// right.
func table(header []string, rows [][]string, left int) string {
	return lay(header, rows, func(i int) bool { return i < left })
}

// tableLast has the first and the last column to the left.
func tableLast(header []string, rows [][]string) string {
	return lay(header, rows, func(i int) bool { return i == 0 || i == len(header)-1 })
}

func lay(header []string, rows [][]string, left func(column int) bool) string {
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
		}
	}
	widths := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{header}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if left(i) {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// printable has a dot for what would move the cursor of a terminal.
func printable(cell string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, cell)
}
