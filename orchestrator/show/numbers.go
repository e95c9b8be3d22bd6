package show

import (
	"fmt"
	"strconv"

	"github.com/cephalorun/cephalorun/profiler"
)

// none stands for a number that is not known.
const none = "-"

// Bytes is a size for a person; what is not known is "-".
func Bytes(n int64) string {
	if n < 0 {
		return none
	}
	return profiler.FormatSize(n)
}

// Ms is a time: "12.3 ms", "1.23 s".
func Ms(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f ms", ms)
	}
}

// Rate is a number of samples per second with three digits or so.
func Rate(v float64) string { return rate(v) }

func rate(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// share is parts per million as a percentage.
func share(ppm int) string { return fmt.Sprintf("%.1f %%", float64(ppm)/10_000) }

func number(n int) string { return strconv.Itoa(n) }

// Count is a number of things: "1 step", "2 steps".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
