// Package pyshim carries the Python package cephalo inside the program and writes it,
// with the generated entry of a worker, into the folder of a run.
//
// Of the project it imports only templates.
package pyshim
