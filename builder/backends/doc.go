// Package backends is what builds the content of images, as its callers see it.
//
// Rule: it knows no backend. Those are handed in by cmd, by the imageBuilderType that they are for.
package backends
