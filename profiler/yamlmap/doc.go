// Package yamlmap reads the YAML files that people write: strictly, field by
// field, with every problem reported at once by the path of its field. Aliases
// are followed; what nobody asked for is an unknown field.
package yamlmap
