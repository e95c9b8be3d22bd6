package yamlmap

import (
	"errors"
	"strings"
	"testing"

	"github.com/cephalorun/cephalorun/profiler"
)

func TestMappingReadsFields(t *testing.T) {
	var problems profiler.ProblemList
	m := Open([]byte("a: text\nb: 3\nc: 1.5\nd: true\ne: 2GiB\nf: [ { g: 1 }, { g: 2 } ]\n"), "fields", &problems)
	sum := 0
	m.List("f", func(item *Mapping) { sum += item.Whole("g", 0, 1, 9); item.RefuseRest() })
	if m.Text("a", true) != "text" || m.Whole("b", 0, 1, 9) != 3 || m.Number("c", 0, 0, 9) != 1.5 || !m.Truth("d") || m.Size("e") != 2<<30 || sum != 3 {
		t.Errorf("read wrongly")
	}
	m.RefuseRest()
	if !problems.Empty() || !m.Given("a") || m.Given("z") {
		t.Error(problems.Err("test"))
	}
}

func TestMappingReportsEverything(t *testing.T) {
	var problems profiler.ProblemList
	m := Open([]byte("a: [1]\nb: x\nc: nan\nd: 7\ne: 2 parsecs\nf: 3\nextra: 1\n"), "fields", &problems)
	m.Need("missing")
	m.Text("a", true)
	m.Whole("b", 0, 1, 9)
	m.Number("c", 0, 0, 9)
	m.Truth("d")
	m.Size("e")
	m.List("f", func(*Mapping) {})
	m.RefuseRest()
	err := problems.Err("test.yaml")
	if !errors.Is(err, profiler.ErrInvalid) {
		t.Fatal(err)
	}
	for _, want := range []string{"missing: is missing", "a: must be a text", `b: is "x", must be a whole number from 1 to 9`, `c: is "nan"`, `d: is "7", must be true or false`, "e: ", "f: must be a list", "extra: is an unknown field"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
