package solver

import "fmt"

// count is a number of things: "1 sample", "2 samples".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// seconds is a time in words.
func seconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f s", ms/1000)
}

// secondsOf is a part of a time, both in the unit of the whole.
func secondsOf(ms, whole float64) string {
	if whole < 1000 {
		return fmt.Sprintf("%.1f of %s", ms, seconds(whole))
	}
	return fmt.Sprintf("%.2f of %s", ms/1000, seconds(whole))
}

// amount is a number of bytes in words.
func amount(n int64) string {
	switch {
	case n == 1:
		return "1 byte"
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<30:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// passOf names a step: "the backward of Block".
func passOf(s StepPrediction) string {
	if s.Backward {
		return "the backward of " + s.Class
	}
	return "the forward of " + s.Class
}

// device names a rank in sentences: "device 2 (slow)".
func (m *model) device(rank int) string {
	return fmt.Sprintf("device %d (%s)", rank, label(m.problem.Devices[rank]))
}
