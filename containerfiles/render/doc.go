// Package render writes the Containerfile that a build runs: offered stages, extensions and kernel,
// the administrator's lines, labels.
//
// Rule: the same input gives the same bytes, and a Containerfile with a finding of severity Error is
// never rendered.
package render
