package profiler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Fields reads one JSON object field by field. What is missing or of the wrong
// type is noted with its path; what nobody asked for is left over: kept
// (Extra) or refused (RefuseRest), as the reader of the file decides.
type Fields struct {
	path     string
	rest     map[string]json.RawMessage
	problems *ProblemList
}

// NewFields opens an object; path is where it stands in the file.
func NewFields(path string, raw json.RawMessage, problems *ProblemList) *Fields {
	f := &Fields{path: path, problems: problems}
	if err := json.Unmarshal(raw, &f.rest); err != nil || f.rest == nil {
		problems.Add(path, "must be an object, is %s", describe(raw))
	}
	return f
}

// Path is where a field stands in the file.
func (f *Fields) Path(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

// Has reports whether a field is there and not null.
func (f *Fields) Has(name string) bool {
	raw, ok := f.rest[name]
	return ok && string(raw) != "null"
}

// Take removes a field; null counts as absent for optional fields.
func (f *Fields) Take(name string, required bool) (json.RawMessage, bool) {
	raw, ok := f.rest[name]
	delete(f.rest, name)
	if ok && (required || string(raw) != "null") {
		return raw, true
	}
	if required {
		f.problems.Add(f.Path(name), "is missing")
	}
	return nil, false
}

// Extra is what was not taken.
func (f *Fields) Extra() Extra {
	if len(f.rest) == 0 {
		return nil
	}
	return Extra(f.rest)
}

// Into decodes a field into target and reports whether it was there and good.
func (f *Fields) Into(name string, required bool, want string, target any) bool {
	raw, ok := f.Take(name, required)
	if !ok {
		return false
	}
	if string(raw) == "null" || json.Unmarshal(raw, target) != nil {
		f.problems.Add(f.Path(name), "must be %s, is %s", want, describe(raw))
		return false
	}
	return true
}

// Text reads a text.
func (f *Fields) Text(name string, required bool) string {
	var s string
	f.Into(name, required, "a text", &s)
	return s
}

// Truth reads true or false.
func (f *Fields) Truth(name string, required bool) bool {
	var b bool
	f.Into(name, required, "true or false", &b)
	return b
}

// Number reads a number.
func (f *Fields) Number(name string, required bool) float64 {
	var n float64
	f.Into(name, required, "a number", &n)
	return n
}

// Whole reads a whole number; it accepts 16 and 16.0: other writers have one type of number.
func (f *Fields) Whole(name string, required bool) int64 {
	raw, ok := f.Take(name, required)
	if !ok {
		return 0
	}
	n, err := wholeNumber(raw)
	if err != nil {
		f.problems.Add(f.Path(name), "%v", err)
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

// ParsePair reads one measured point, [microbatch, value].
func ParsePair(raw json.RawMessage) ([2]float64, error) {
	var pair []float64
	if json.Unmarshal(raw, &pair) != nil || len(pair) != 2 {
		return [2]float64{}, errors.New("must be a pair [microbatch, value]")
	}
	return [2]float64{pair[0], pair[1]}, nil
}

// Problem notes what a caller found wrong at a path.
func (f *Fields) Problem(path string, err error) { f.problems.Add(path, "%v", err) }

// Object opens a nested object; nil when absent.
func (f *Fields) Object(name string, required bool) *Fields {
	raw, ok := f.Take(name, required)
	if !ok {
		return nil
	}
	return NewFields(f.Path(name), raw, f.problems)
}

// List calls each for every element of an array.
func (f *Fields) List(name string, required bool, each func(path string, raw json.RawMessage)) {
	var items []json.RawMessage
	if !f.Into(name, required, "a list", &items) {
		return
	}
	for i, raw := range items {
		each(fmt.Sprintf("%s[%d]", f.Path(name), i), raw)
	}
}

// Each calls do for every remaining field, by name, and takes them all.
func (f *Fields) Each(do func(name string, raw json.RawMessage)) {
	for _, name := range sortedKeys(f.rest) {
		raw := f.rest[name]
		delete(f.rest, name)
		do(name, raw)
	}
}

// Numbers reads an object of numbers.
func (f *Fields) Numbers(name string, required bool) map[string]float64 {
	o := f.Object(name, required)
	if o == nil {
		return nil
	}
	out := map[string]float64{}
	o.Each(func(key string, raw json.RawMessage) {
		o.rest[key] = raw
		out[key] = o.Number(key, true)
	})
	return out
}

// RefuseRest reports what was not taken as unknown fields.
func (f *Fields) RefuseRest() {
	for _, name := range sortedKeys(f.rest) {
		f.problems.Add(f.Path(name), "is an unknown field")
	}
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
