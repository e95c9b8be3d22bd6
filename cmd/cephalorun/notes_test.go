package main

import (
	"errors"
	"strings"
	"testing"
)

func TestNotesAreSentencesAndSaidOnce(t *testing.T) {
	var out strings.Builder
	log := newNotes(&out)
	log.Info("nothing of interest")
	for range 3 {
		log.Error("not all that torchrun printed could be read", "error", errors.New("input/output error"))
	}
	if want := "note: not all that torchrun printed could be read: input/output error\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
