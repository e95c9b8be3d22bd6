package profiler

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
)

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)$`)

// unitBytes are the accepted units; a bare number counts bytes.
func unitBytes(unit string) (int64, bool) {
	switch unit {
	case "", "B":
		return 1, true
	case "KiB":
		return 1 << 10, true
	case "MiB":
		return 1 << 20, true
	case "GiB":
		return 1 << 30, true
	case "TiB":
		return 1 << 40, true
	case "kB", "KB":
		return 1e3, true
	case "MB":
		return 1e6, true
	case "GB":
		return 1e9, true
	case "TB":
		return 1e12, true
	default:
		return 0, false
	}
}

// maxSizeBytes is more memory than any device has (1 PiB); above it is a slip.
const maxSizeBytes = 1 << 50

// ParseSize reads a memory size: "40GiB", "1.5GiB", "512MiB", "2GB" or plain
// bytes. Fractions of a byte are dropped.
func ParseSize(s string) (int64, error) {
	m := sizePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a memory size: write a number with a unit, such as 40GiB or 512MiB", s)
	}
	unit, ok := unitBytes(m[2])
	if !ok {
		return 0, fmt.Errorf("%q has the unknown unit %q: use KiB, MiB, GiB, TiB or KB, MB, GB, TB", s, m[2])
	}
	value, ok := new(big.Rat).SetString(m[1])
	if !ok {
		return 0, fmt.Errorf("%q is not a memory size", s)
	}
	value.Mul(value, new(big.Rat).SetInt64(unit))
	n := new(big.Int).Quo(value.Num(), value.Denom())
	if !n.IsInt64() || n.Int64() > maxSizeBytes {
		return 0, fmt.Errorf("%q is more than 1024 TiB", s)
	}
	if n.Sign() == 0 {
		return 0, fmt.Errorf("%q is no memory at all: it must be at least one byte", s)
	}
	return n.Int64(), nil
}

// FormatSize writes bytes for a person: "40.0 GiB", "512 MiB", "17 B"; "-" for
// an unknown number.
func FormatSize(n int64) string {
	switch {
	case n < 0:
		return "-"
	case n >= 1<<40:
		return fmt.Sprintf("%.1f TiB", float64(n)/(1<<40))
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	default:
		return strconv.FormatInt(n, 10) + " B"
	}
}
