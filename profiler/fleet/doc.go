// Package fleet reads devices from a JSON file: made-up or captured fleets, for
// tests and for asking what a plan would look like on other hardware.
//
//	{ "version": 1, "note": "where it comes from",
//	  "devices": [ { "uuid": "GPU-…", "name": "Tesla T4", "kind": "cuda",
//	                 "memory_bytes": 16106127360, "capability": [7, 5] } ] }
//
// Fields left out are unknown, never 0; usable memory is free memory less the
// reserve. "fails": "no-driver" or "cannot-ask" makes the whole source fail.
package fleet
