package solver

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// givenTwice notes every field that an object has twice: a decoder takes the last one, and
// nobody can tell which was meant. The text must be good JSON.
func givenTwice(data []byte, faults *[]error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	walkTwice(dec, "", faults)
}

// walkTwice looks at one value. What is wrong with the text was said before.
func walkTwice(dec *json.Decoder, path string, faults *[]error) {
	token, _ := dec.Token()
	delim, ok := token.(json.Delim)
	if !ok {
		return
	}
	seen := map[string]bool{}
	for i := 0; dec.More(); i++ {
		if delim == '[' {
			walkTwice(dec, fmt.Sprintf("%s[%d]", path, i), faults)
			continue
		}
		name, _ := dec.Token()
		key := fmt.Sprint(name)
		if seen[key] {
			*faults = append(*faults, fmt.Errorf("%s: is given twice; leave only the one that is meant", join(path, key)))
		}
		seen[key] = true
		walkTwice(dec, join(path, key), faults)
	}
	_, _ = dec.Token() // the end of the list or object
}
