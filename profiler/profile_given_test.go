package profiler

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// given reads the good profile with changes, as a file that somebody names.
func given(t *testing.T, pairs ...string) (Profile, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.json")
	text := strings.NewReplacer(pairs...).Replace(goodProfile)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return ReadGivenProfile(path)
}

func TestAGivenProfileMustMakeSense(t *testing.T) {
	p, err := given(t)
	if err != nil || len(p.Doubts()) > 0 {
		t.Fatalf("%v, doubts %q", err, p.Doubts())
	}
	_, err = given(t, `"name":"m"`, `"name":""`, `"reserved_bytes":10`, `"reserved_bytes":901`, `"state_bytes_per_parameter":16`, `"state_bytes_per_parameter":-4`)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{"3 problems", "model.name: is empty", "devices[0].reserved_bytes: is 901, more than usable_memory_bytes 900", "model.state_bytes_per_parameter: is -4, must be above 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

// Fields of others are passed over; what looks like a slip is said, with what was meant.
func TestDoubtsOfAProfile(t *testing.T) {
	for text, want := range map[string][]string{
		`"rank":0,"overlap_los":1,"usable_memory_byte":5`: {"devices[0].usable_memory_byte is not known and not used; is usable_memory_bytes meant?"},
		`"rank":0,"rnak":0`: nil, // too short to tell
	} {
		p, err := given(t, `"rank":0`, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Doubts(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	p, err := given(t)
	if err != nil {
		t.Fatal(err)
	}
	p.Model.Parameters++
	p.Devices[0].Costs["blok"], p.Collectives["blok"] = UnitCosts{}, Collective{}
	got := strings.Join(p.Doubts(), "\n")
	for _, want := range []string{"model.parameters is ", "and the units have ", "devices[0].costs.blok is not used: no unit is of that class", "collectives.blok is not used"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

func TestLetters(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"held", "held", 0}, {"overlap_los", "overlap_loss", 1}, {"fxied_ms", "fixed_ms", 2}, {"note", "inside", 4}, {"abc", "abcdef", 3}} {
		if got := letters(c.a, c.b); got != c.want && !(got >= 3 && c.want >= 3) {
			t.Errorf("%s, %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
