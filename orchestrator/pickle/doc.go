// Package pickle looks into a Python pickle without running any of it: it finds the attributes of
// the objects of one class, and whether the file was cut short. Lists, tuples and what objects are
// made from are passed over.
//
// The package imports nothing else of the project.
package pickle
