package solver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// decodeStrict fills the struct that out points to. Every field must be there
// unless it is tagged omitempty, no other may be, and every fault is reported with its path.
func decodeStrict(data []byte, out any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return fmt.Errorf("is cut short after %d bytes: %w", len(data), err)
		}
		return fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has more after the end of the document")
	}
	var faults []error
	givenTwice(data, &faults)
	fill(reflect.ValueOf(out).Elem(), tree, "", &faults)
	return errors.Join(faults...)
}

func fill(dst reflect.Value, src any, path string, faults *[]error) {
	bad := func(want string) {
		where := path
		if where == "" {
			where = "the document"
		}
		*faults = append(*faults, fmt.Errorf("%s: want %s, got %s", where, want, kindOf(src)))
	}
	switch dst.Kind() {
	case reflect.String:
		s, ok := src.(string)
		if !ok {
			bad("text")
			return
		}
		dst.SetString(s)
	case reflect.Int, reflect.Int64:
		n, ok := src.(json.Number)
		if !ok {
			bad("a whole number")
			return
		}
		v, err := strconv.ParseInt(n.String(), 10, 64)
		if err != nil {
			bad("a whole number")
			return
		}
		dst.SetInt(v)
	case reflect.Float64:
		n, ok := src.(json.Number)
		if !ok {
			bad("a number")
			return
		}
		v, err := n.Float64()
		if err != nil || math.IsInf(v, 0) {
			bad("a finite number")
			return
		}
		dst.SetFloat(v)
	case reflect.Slice:
		list, ok := src.([]any)
		if !ok {
			bad("a list")
			return
		}
		dst.Set(reflect.MakeSlice(dst.Type(), len(list), len(list)))
		for i, item := range list {
			fill(dst.Index(i), item, fmt.Sprintf("%s[%d]", path, i), faults)
		}
	case reflect.Map:
		object, ok := src.(map[string]any)
		if !ok {
			bad("an object")
			return
		}
		fillMap(dst, object, path, faults)
	case reflect.Struct:
		object, ok := src.(map[string]any)
		if !ok {
			bad("an object")
			return
		}
		fillStruct(dst, object, path, faults)
	default:
		panic("solver: no rule to read " + dst.Type().String())
	}
}

func fillStruct(dst reflect.Value, object map[string]any, path string, faults *[]error) {
	known := map[string]bool{}
	for i := range dst.NumField() {
		name, optional := strings.CutSuffix(dst.Type().Field(i).Tag.Get("json"), ",omitempty")
		known[name] = true
		item, ok := object[name]
		if !ok && optional {
			continue
		}
		if !ok {
			*faults = append(*faults, fmt.Errorf("%s: missing", join(path, name)))
			continue
		}
		fill(dst.Field(i), item, join(path, name), faults)
	}
	for _, name := range sortedKeys(object) {
		if !known[name] {
			*faults = append(*faults, fmt.Errorf("%s: unknown field", join(path, name)))
		}
	}
}

// fillMap reads an object whose names are free.
func fillMap(dst reflect.Value, object map[string]any, path string, faults *[]error) {
	dst.Set(reflect.MakeMap(dst.Type()))
	for _, name := range sortedKeys(object) {
		item := reflect.New(dst.Type().Elem()).Elem()
		fill(item, object[name], join(path, name), faults)
		dst.SetMapIndex(reflect.ValueOf(name), item)
	}
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return strconv.Quote(v)
	case json.Number:
		return v.String()
	case []any:
		return "a list"
	default:
		return "an object"
	}
}
