package profiler

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// givenTwice notes every field of a JSON text that an object has twice: readers take the last
// one, and nobody can tell which was meant. The text must be good JSON.
func givenTwice(data []byte, problems *ProblemList) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	type object struct {
		level
		seen map[string]bool
	}
	var stack []object
	for {
		token, err := decoder.Token()
		if err != nil {
			return
		}
		if delim, ok := token.(json.Delim); ok && (delim == '{' || delim == '[') {
			stack = append(stack, object{level{list: delim == '[', isKey: delim == '{'}, map[string]bool{}})
			continue
		}
		if _, ok := token.(json.Delim); ok {
			stack = stack[:len(stack)-1]
		}
		if len(stack) == 0 {
			return
		}
		top := &stack[len(stack)-1]
		switch {
		case top.list:
			top.index++
		case top.isKey:
			top.key, top.isKey = fmt.Sprint(token), false
			if top.seen[top.key] {
				levels := make([]level, len(stack))
				for i, o := range stack {
					levels[i] = o.level
				}
				problems.Add(pathOf(levels), "is given twice: leave only the one that is meant")
			}
			top.seen[top.key] = true
		default:
			top.isKey = true
		}
	}
}
