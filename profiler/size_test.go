package profiler

import (
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	cases := map[string]struct {
		want int64
		err  string
	}{
		"40GiB":                  {want: 40 << 30},
		"512MiB":                 {want: 512 << 20},
		"1.5GiB":                 {want: 3 << 29},
		"0.1GiB":                 {want: 107374182},
		"2GB":                    {want: 2e9},
		"2 GiB":                  {want: 2 << 30},
		"123456":                 {want: 123456},
		"7B":                     {want: 7},
		"40G":                    {err: "unknown unit"},
		"40gib":                  {err: "unknown unit"},
		"-1GiB":                  {err: "not a memory size"},
		"":                       {err: "not a memory size"},
		"GiB":                    {err: "not a memory size"},
		"1e9":                    {err: "not a memory size"},
		"0":                      {err: "at least one byte"},
		"0.0001B":                {err: "at least one byte"},
		"99999999999999999999":   {err: "1024 TiB"},
		"9999999999999999999TiB": {err: "1024 TiB"},
	}
	for in, c := range cases {
		t.Run(in, func(t *testing.T) {
			got, err := ParseSize(in)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %d, %v; want an error with %q", got, err, c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestFormatSize(t *testing.T) {
	cases := map[int64]string{
		Unknown: "-", 0: "0 B", 17: "17 B", 2048: "2 KiB", 512 << 20: "512 MiB", 40 << 30: "40.0 GiB", 3 << 40: "3.0 TiB",
	}
	for n, want := range cases {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
