package show

import (
	"fmt"

	"github.com/cephalorun/cephalorun/solver"
)

// Strategies is the table of a comparison. operations are those of one sample, 0 where
// they are not known; with them the table has what the devices achieve. On a screen, where
// long lines would break the table, the last column is cut, and why a strategy does not run
// stands below.
func Strategies(list []solver.Outcome, operations float64, screen bool) string {
	header, rows := StrategyRows(list, operations)
	below := ""
	for i, row := range rows {
		how := row[len(row)-1]
		short := shortened(how, 110)
		if !screen || short == how {
			continue
		}
		row[len(row)-1] = short
		if !list[i].Fits() {
			below += list[i].Strategy + " " + how + "\n"
		}
	}
	return tableLast(header, rows) + below
}

// StrategyRows are the cells of that table.
func StrategyRows(list []solver.Outcome, operations float64) (header []string, rows [][]string) {
	header = []string{"strategy", "samples/s", "step", "computing", "fullest device"}
	if operations > 0 {
		header = append(header, "TFLOP/s")
	}
	header = append(header, "how")
	for _, o := range list {
		row := []string{o.Strategy, none, none, none, none}
		if o.Fits() {
			row = []string{o.Strategy, rate(o.SamplesPerSecond), Ms(o.IterationMs), fmt.Sprintf("%.0f %%", 100*o.Utilisation()), fullest(o)}
		}
		if operations > 0 {
			cell := none
			if o.Fits() {
				cell = rate(o.SamplesPerSecond * operations / 1e12)
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, o.How))
	}
	return header, rows
}

// fullest is the device that uses the largest part of its memory.
func fullest(o solver.Outcome) string {
	worst, most := -1, -1.0
	for i, r := range o.Ranks {
		if part := float64(r.MemoryBytes) / float64(max(1, r.UsableBytes)); part > most {
			worst, most = i, part
		}
	}
	if worst < 0 {
		return none
	}
	r := o.Ranks[worst]
	return fmt.Sprintf("%s of %s (%s)", Bytes(r.MemoryBytes), Bytes(r.UsableBytes), r.Device)
}

func shortened(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-3]) + "..."
}
