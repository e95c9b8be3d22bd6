package profiler

import (
	"fmt"
	"reflect"
	"strings"
)

// ReadGivenProfile is ReadProfile for a file that somebody names, and may have written: it must
// also make sense by itself.
func ReadGivenProfile(path string) (Profile, error) {
	data, err := ReadInput(path, MostInputBytes)
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	return parseProfile(path, data, Profile.checkGiven)
}

// checkGiven checks what a measurement may find and a file should not say.
func (p Profile) checkGiven(l *ProblemList) {
	if p.Model.Name == "" {
		l.Add("model.name", "is empty")
	}
	for i, d := range p.Devices {
		unread := l.seen[fmt.Sprintf("devices[%d].usable_memory_bytes", i)] // a bound that is wrong itself says nothing
		if !unread && d.ReservedBytes > d.UsableMemoryBytes {
			l.Add(fmt.Sprintf("devices[%d].reserved_bytes", i), "is %d, more than usable_memory_bytes %d: nothing is left to compute with", d.ReservedBytes, d.UsableMemoryBytes)
		}
	}
}

// Doubts are sentences about what is in the file, is not used, and looks like a slip: fields
// of other writers are kept and passed over.
func (p Profile) Doubts() []string {
	var out []string
	p.eachPart(func(path string, part any, extra Extra) {
		for _, name := range sortedKeys(extra) {
			if meant := likely(name, fieldsOf(part)); meant != "" {
				out = append(out, fmt.Sprintf("%s is not known and not used; is %s meant?", dotted(path, name), meant))
			}
		}
	})
	classes := map[string]bool{}
	sum := int64(0)
	for _, u := range p.Model.Units {
		classes[u.Class] = true
		sum += int64(u.Count) * u.Parameters
	}
	if sum != p.Model.Parameters {
		out = append(out, fmt.Sprintf("model.parameters is %d, and the units have %d together, which is what is planned with", p.Model.Parameters, sum))
	}
	for _, class := range sortedKeys(p.Collectives) {
		if !classes[class] {
			out = append(out, fmt.Sprintf("collectives.%s is not used: no unit is of that class", class))
		}
	}
	for i, d := range p.Devices {
		for _, class := range sortedKeys(d.Costs) {
			if !classes[class] {
				out = append(out, fmt.Sprintf("devices[%d].costs.%s is not used: no unit is of that class", i, class))
			}
		}
	}
	return out
}

// eachPart calls do for every part of the profile that may hold fields of other writers.
func (p Profile) eachPart(do func(path string, part any, extra Extra)) {
	do("", p, p.Extra)
	do("model", p.Model, p.Model.Extra)
	for i, u := range p.Model.Units {
		do(fmt.Sprintf("model.units[%d]", i), u, u.Extra)
	}
	for i, d := range p.Devices {
		at := fmt.Sprintf("devices[%d]", i)
		do(at, d, d.Extra)
		for _, class := range sortedKeys(d.Costs) {
			do(at+".costs."+class, d.Costs[class], d.Costs[class].Extra)
		}
	}
	for _, class := range sortedKeys(p.Collectives) {
		do("collectives."+class, p.Collectives[class], p.Collectives[class].Extra)
	}
	do("microbatch_overhead_ms", p.MicrobatchOverheadMs, p.MicrobatchOverheadMs.Extra)
	if p.Script != nil {
		do("script", *p.Script, p.Script.Extra)
	}
}

func dotted(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// fieldsOf are the names that a part of a file may have.
func fieldsOf(part any) []string {
	t := reflect.TypeOf(part)
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// likely is the known name that an unknown one differs from by a letter or, of a long name,
// two: of short ones that says nothing.
func likely(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		most := min(2, len(k)/5)
		if d := letters(name, k); d <= most && d < least {
			best, least = k, d
		}
	}
	return best
}

// letters is how many letters must be put in, left out or changed to make one name of another.
func letters(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			here := before
			if a[i] != b[j] {
				here = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], here
		}
	}
	return row[len(b)]
}
