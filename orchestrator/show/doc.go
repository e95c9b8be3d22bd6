// Package show turns devices, plans, progress and reports into text for people. Its
// functions are pure: they return what is to be printed, and the caller prints it.
//
// It imports profiler and solver for their types.
package show
