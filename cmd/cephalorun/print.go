package main

import (
	"encoding/json"
	"io"
)

// printJSON prints a value as indented JSON.
func printJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

func printText(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}
