// Package events carries what workers say to the supervisor and back: JSON lines
// over one stream per rank on a unix socket in a private folder (events v1), and
// the file that keeps them.
//
// A line that cannot be understood becomes an event of kind "malformed" that names
// it; nothing that a worker sends ends the supervisor. A stream that ends becomes
// an event of kind "gone". The workers take the end of their stream as the end of
// the supervisor and go at once, so the server is closed last.
//
// The package imports nothing else of the project.
package events
