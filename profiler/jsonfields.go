package profiler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sort"
)

// fields reads one JSON object field by field. What is missing or of the wrong
// type is noted with its path; what nobody asked for is left over in rest.
type fields struct {
	path     string
	rest     map[string]json.RawMessage
	problems *ProblemList
}

func newFields(path string, raw json.RawMessage, problems *ProblemList) *fields {
	f := &fields{path: path, problems: problems}
	if err := json.Unmarshal(raw, &f.rest); err != nil || f.rest == nil {
		problems.Add(path, "must be an object, is %s", describe(raw))
	}
	return f
}

func (f *fields) join(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

// take removes a field; null counts as absent for optional fields.
func (f *fields) take(name string, required bool) (json.RawMessage, bool) {
	raw, ok := f.rest[name]
	delete(f.rest, name)
	if ok && (required || string(raw) != "null") {
		return raw, true
	}
	if required {
		f.problems.Add(f.join(name), "is missing")
	}
	return nil, false
}

// extra is what was not taken.
func (f *fields) extra() Extra {
	if len(f.rest) == 0 {
		return nil
	}
	return Extra(f.rest)
}

// into decodes a field into target and reports whether it was there and good.
func (f *fields) into(name string, required bool, want string, target any) bool {
	raw, ok := f.take(name, required)
	if !ok {
		return false
	}
	if string(raw) == "null" || json.Unmarshal(raw, target) != nil {
		f.problems.Add(f.join(name), "must be %s, is %s", want, describe(raw))
		return false
	}
	return true
}

func (f *fields) text(name string, required bool) string {
	var s string
	f.into(name, required, "a text", &s)
	return s
}

func (f *fields) truth(name string, required bool) bool {
	var b bool
	f.into(name, required, "true or false", &b)
	return b
}

func (f *fields) number(name string, required bool) float64 {
	var n float64
	f.into(name, required, "a number", &n)
	return n
}

// whole accepts 16 and 16.0: other writers have one type of number.
func (f *fields) whole(name string, required bool) int64 {
	raw, ok := f.take(name, required)
	if !ok {
		return 0
	}
	n, err := wholeNumber(raw)
	if err != nil {
		f.problems.Add(f.join(name), "%v", err)
	}
	return n
}

func wholeNumber(raw json.RawMessage) (int64, error) {
	var n int64
	if string(raw) != "null" && json.Unmarshal(raw, &n) == nil {
		return n, nil
	}
	var x float64
	if string(raw) == "null" || json.Unmarshal(raw, &x) != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("must be a whole number, is %s", describe(raw))
	}
	return int64(x), nil
}

// object opens a nested object; nil when absent.
func (f *fields) object(name string, required bool) *fields {
	raw, ok := f.take(name, required)
	if !ok {
		return nil
	}
	return newFields(f.join(name), raw, f.problems)
}

// list calls each for every element of an array.
func (f *fields) list(name string, required bool, each func(path string, raw json.RawMessage)) {
	var items []json.RawMessage
	if !f.into(name, required, "a list", &items) {
		return
	}
	for i, raw := range items {
		each(fmt.Sprintf("%s[%d]", f.join(name), i), raw)
	}
}

// each calls do for every remaining field, by name, and takes them all.
func (f *fields) each(do func(name string, raw json.RawMessage)) {
	names := make([]string, 0, len(f.rest))
	for name := range f.rest {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		raw := f.rest[name]
		delete(f.rest, name)
		do(name, raw)
	}
}

// numbers reads an object of numbers.
func (f *fields) numbers(name string, required bool) map[string]float64 {
	o := f.object(name, required)
	if o == nil {
		return nil
	}
	out := map[string]float64{}
	o.each(func(key string, raw json.RawMessage) {
		o.rest[key] = raw
		out[key] = o.number(key, true)
	})
	return out
}

// describe shows a JSON value in a message, shortened.
func describe(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list"
	case len(raw) > 40:
		return string(raw[:37]) + "..."
	default:
		return string(raw)
	}
}

// withExtra marshals v (an object) and appends the fields that were kept.
func withExtra(v any, extra Extra) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil || len(extra) == 0 {
		return data, err
	}
	rest, err := json.Marshal(map[string]json.RawMessage(extra))
	if err != nil {
		return nil, err
	}
	if len(data) == 2 { // {}
		return rest, nil
	}
	return append(append(data[:len(data)-1], ','), rest[1:]...), nil
}
