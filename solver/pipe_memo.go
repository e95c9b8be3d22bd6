package solver

import (
	"encoding/binary"
	"math"
)

// memo remembers divisions: replicas of a large cluster are mostly alike.
type memo map[string]divided

type divided struct {
	pipe pipeline
	ok   bool
}

// cut is the division for the teams, found before or now. Everything else that
// it depends on must be the same for the whole memo or in the numbers.
func (c memo) cut(m *model, teams []team, make func() *cutter, numbers ...int) (pipeline, bool) {
	key := m.teamsKey(teams, numbers)
	found, ok := c[key]
	if !ok {
		found.pipe, found.ok = make().cut(math.Inf(1))
		c[key] = found
	}
	found.pipe.teams = teams
	return found.pipe, found.ok
}

// teamsKey is equal for chains of teams that cost the same.
func (m *model) teamsKey(teams []team, numbers []int) string {
	var key []byte
	add := func(v uint64) { key = binary.BigEndian.AppendUint64(key, v) }
	for _, n := range numbers {
		add(uint64(n))
	}
	for i, t := range teams {
		add(uint64(len(t)))
		for _, rank := range t {
			add(uint64(m.kindOf[rank]))
		}
		add(math.Float64bits(m.speed(t...)))
		if i+1 < len(teams) {
			add(math.Float64bits(m.speed(t[0], teams[i+1][0])))
		}
	}
	return string(key)
}
