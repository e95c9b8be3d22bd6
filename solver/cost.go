package solver

import "sort"

// Cost is a quantity against the number of samples: linear between measured
// points, a line beyond the last of them.
type Cost struct {
	// Points are (samples, value), samples strictly ascending.
	Points [][2]float64 `json:"points"`
	// Tail holds beyond the last point, and everywhere if there is none.
	Tail Line `json:"tail"`
}

// Line is Slope*samples + Intercept.
type Line struct {
	Slope     float64 `json:"slope"`
	Intercept float64 `json:"intercept"`
}

// At is the cost of m samples, never negative. Below the first point the cost
// is that of the first point. No samples cost nothing unless a point at 0 says
// otherwise.
func (c Cost) At(m int) float64 {
	x := float64(m)
	n := len(c.Points)
	if m <= 0 {
		if n > 0 && c.Points[0][0] == 0 {
			return max(0, c.Points[0][1])
		}
		return 0
	}
	if n == 0 || x > c.Points[n-1][0] {
		return max(0, c.Tail.Slope*x+c.Tail.Intercept)
	}
	i := sort.Search(n, func(i int) bool { return c.Points[i][0] >= x })
	hi := c.Points[i]
	if i == 0 || hi[0] == x {
		return max(0, hi[1])
	}
	lo := c.Points[i-1]
	return max(0, lo[1]+(hi[1]-lo[1])*(x-lo[0])/(hi[0]-lo[0]))
}

// last is the sample count of the last measured point, 0 without points.
func (c Cost) last() int {
	if len(c.Points) == 0 {
		return 0
	}
	return int(c.Points[len(c.Points)-1][0])
}
