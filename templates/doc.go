// Package templates owns every text that is generated from a template: the entry
// script of a worker, the launcher's entry, the report page and bar charts. A value that a
// template names and does not get is an error.
//
// It imports nothing else of the project.
package templates
