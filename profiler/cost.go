package profiler

// Cost is a cost by microbatch size: measured points [m, value] in growing m,
// and a line for what lies beyond the last of them.
type Cost struct {
	Points [][2]float64 `json:"points"`
	Tail   Tail         `json:"tail"`
	Extra  Extra        `json:"-"`
}

// Tail is the line slope·m + intercept.
type Tail struct {
	Slope     float64 `json:"slope"`
	Intercept float64 `json:"intercept"`
	Extra     Extra   `json:"-"`
}

// At is the cost of a microbatch of m samples: linear between points, the tail
// beyond the last one or without points. Below the first point it is that
// point's value, which never understates; nothing (m <= 0) costs nothing.
func (c Cost) At(m float64) float64 {
	if m <= 0 {
		return 0
	}
	n := len(c.Points)
	if n == 0 || m > c.Points[n-1][0] {
		return c.Tail.Slope*m + c.Tail.Intercept
	}
	for i, p := range c.Points {
		if m > p[0] {
			continue
		}
		if i == 0 || m == p[0] {
			return p[1]
		}
		q := c.Points[i-1]
		return q[1] + (p[1]-q[1])*(m-q[0])/(p[0]-q[0])
	}
	return c.Points[n-1][1]
}

// Times is the cost multiplied by a factor.
func (c Cost) Times(factor float64) Cost {
	out := Cost{Points: make([][2]float64, len(c.Points)), Tail: Tail{Slope: c.Tail.Slope * factor, Intercept: c.Tail.Intercept * factor}}
	for i, p := range c.Points {
		out.Points[i] = [2]float64{p[0], p[1] * factor}
	}
	return out
}
