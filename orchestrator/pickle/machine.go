package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of a file that is not a whole pickle. Any other error is of one that holds what is not
// known here.
var (
	ErrCut = errors.New("it is cut short")
	ErrNot = errors.New("it is no pickle")
)

// Attributes are an object's, those that are text or whole numbers (int64).
type Attributes map[string]any

// object is a value that was made by calling a class.
type object struct{ class string }

// opaque is a value that does not matter.
type opaque struct{}

// Objects returns the attributes of all objects of a class, in the order of the file.
func Objects(data []byte, class string) ([]Attributes, error) {
	if len(data) == 0 || data[0] != proto {
		return nil, ErrNot // Python has begun them so since protocol 2
	}
	m := machine{rest: data, class: class, memo: map[uint64]any{}}
	for {
		done, err := m.step()
		if err != nil || done {
			return m.found, err
		}
	}
}

// machine reads one instruction after the other.
type machine struct {
	rest  []byte
	class string
	stack []any
	marks []int
	memo  map[uint64]any
	found []Attributes
	err   error // of the first read past the end, or of an empty stack
}

func (m *machine) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// bytes takes so many bytes of the file.
func (m *machine) bytes(n uint64) []byte {
	if m.err != nil || n > uint64(len(m.rest)) {
		m.fail(ErrCut)
		return nil
	}
	taken := m.rest[:n]
	m.rest = m.rest[n:]
	return taken
}

// number takes a whole number of so many bytes.
func (m *machine) number(size uint64) uint64 {
	var whole [8]byte
	copy(whole[:], m.bytes(size))
	return binary.LittleEndian.Uint64(whole[:])
}

// line takes the text up to the end of the line.
func (m *machine) line() string {
	at := bytes.IndexByte(m.rest, '\n')
	if at < 0 {
		m.fail(ErrCut)
		return ""
	}
	return string(m.bytes(uint64(at + 1))[:at])
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) pop() any {
	if len(m.stack) == 0 {
		m.fail(fmt.Errorf("an instruction lacks its value"))
		return opaque{}
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v
}

// popMark takes what was pushed since the newest mark.
func (m *machine) popMark() []any {
	if len(m.marks) == 0 || m.marks[len(m.marks)-1] > len(m.stack) {
		m.fail(fmt.Errorf("an instruction lacks its mark"))
		return nil
	}
	at := m.marks[len(m.marks)-1]
	m.marks = m.marks[:len(m.marks)-1]
	values := m.stack[at:]
	m.stack = m.stack[:at:at]
	return values
}

// top is the newest value, which stays.
func (m *machine) top() any {
	v := m.pop()
	m.push(v)
	return v
}

// set adds pairs of keys and values to a dictionary.
func set(to any, pairs []any) {
	dict, ok := to.(Attributes)
	if !ok {
		return
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, isText := pairs[i].(string)
		switch value := pairs[i+1].(type) {
		case string, int64:
			if isText {
				dict[key] = value
			}
		}
	}
}

// made is what calling a value gives.
func made(by any) any {
	if class, ok := by.(string); ok {
		return object{class}
	}
	return opaque{}
}

// build gives the newest object its attributes.
func (m *machine) build() {
	state, ok := m.pop().(Attributes)
	if o, isObject := m.top().(object); ok && isObject && o.class == m.class {
		m.found = append(m.found, state)
	}
}
