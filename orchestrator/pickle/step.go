package pickle

import "fmt"

// proto begins every pickle.
const proto = 0x80

// step does one instruction; true after the last one. The instructions are those of Python's
// pickletools, protocols 2 to 5; a class is held as the text "module.name".
func (m *machine) step() (bool, error) {
	code := m.bytes(1)
	if m.err != nil {
		return false, m.err
	}
	switch op := code[0]; op {
	case '.': // STOP
		return true, nil
	case proto:
		m.bytes(1)
	case 0x95: // FRAME
		m.bytes(8)
	case '(':
		m.marks = append(m.marks, len(m.stack))
	case '0':
		m.pop()
	case '1':
		m.popMark()
	case '2':
		m.push(m.top())
	case 'N', 0x88, 0x89, ']', ')', 0x8f: // None, true, false, and what is empty
		m.push(opaque{})
	case 'G': // a float
		m.bytes(8)
		m.push(opaque{})
	case 'J':
		m.push(int64(int32(m.number(4))))
	case 'K':
		m.push(int64(m.number(1)))
	case 'M':
		m.push(int64(m.number(2)))
	case 0x8a: // LONG1
		m.push(long(m.bytes(m.number(1))))
	case 0x8b: // LONG4
		m.push(long(m.bytes(m.number(4))))
	case 'U', 'C', 0x8c: // text and bytes, with one byte for the length
		m.push(string(m.bytes(m.number(1))))
	case 'T', 'X', 'B':
		m.push(string(m.bytes(m.number(4))))
	case 0x8d, 0x8e, 0x96:
		m.push(string(m.bytes(m.number(8))))
	case 'c': // GLOBAL
		module := m.line()
		m.push(module + "." + m.line())
	case 0x93: // STACK_GLOBAL
		name, module := m.pop(), m.pop()
		m.push(fmt.Sprint(module, ".", name))
	case '}':
		m.push(Attributes{})
	case 'd': // DICT
		dict := Attributes{}
		set(dict, m.popMark())
		m.push(dict)
	case 's': // SETITEM
		value, key := m.pop(), m.pop()
		set(m.top(), []any{key, value})
	case 'u': // SETITEMS
		pairs := m.popMark()
		set(m.top(), pairs)
	case 'a': // APPEND
		m.pop()
	case 'e', 0x90: // APPENDS, ADDITEMS
		m.popMark()
	case 't', 'l', 0x91: // TUPLE, LIST, FROZENSET
		m.popMark()
		m.push(opaque{})
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		for range op - 0x84 {
			m.pop()
		}
		m.push(opaque{})
	case 'R', 0x81: // REDUCE, NEWOBJ
		m.pop()
		m.push(made(m.pop()))
	case 0x92: // NEWOBJ_EX
		m.pop()
		m.pop()
		m.push(made(m.pop()))
	case 'b':
		m.build()
	case 'q':
		m.memo[m.number(1)] = m.top()
	case 'r':
		m.memo[m.number(4)] = m.top()
	case 0x94: // MEMOIZE
		m.memo[uint64(len(m.memo))] = m.top()
	case 'h':
		m.push(m.memo[m.number(1)])
	case 'j':
		m.push(m.memo[m.number(4)])
	default:
		return false, fmt.Errorf("the instruction %#x is not known", op)
	}
	return false, m.err
}

// long is a whole number of any length; one that does not fit does not matter.
func long(data []byte) any {
	if len(data) > 8 {
		return opaque{}
	}
	var n uint64
	for i, b := range data {
		n |= uint64(b) << (8 * i)
	}
	if k := len(data); k > 0 && k < 8 && data[k-1]&0x80 != 0 {
		n |= ^uint64(0) << (8 * k)
	}
	return int64(n)
}
