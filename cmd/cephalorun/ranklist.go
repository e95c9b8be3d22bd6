package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// rankList are ranks that a flag names, each once.
type rankList []int

var _ pflag.Value = (*rankList)(nil)

// String implements pflag.Value.
func (r *rankList) String() string {
	words := make([]string, len(*r))
	for i, n := range *r {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// Set implements pflag.Value; a flag given again adds to what it named.
func (r *rankList) Set(text string) error {
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		switch {
		case err != nil || n < 0:
			return fmt.Errorf("%q is no rank: ranks are whole numbers from 0 on, as in 3,5", word)
		case slices.Contains(*r, n):
			return fmt.Errorf("rank %d is named twice", n)
		}
		*r = append(*r, n)
	}
	return nil
}

// Type implements pflag.Value.
func (r *rankList) Type() string { return "rank,..." }
