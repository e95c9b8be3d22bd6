// Package cache remembers profiles: one file per fingerprint in the state
// folder's profiles/. A fingerprint covers whatever changes what a model costs,
// so that a cached profile is either right or not found.
//
// A file that cannot be used is never used in silence and never deleted
// unasked: looking it up fails with a CorruptError that names it, and storing
// the new measurement replaces it.
package cache
