// Package probe is what pods of `layerwright check --pods` do: they find out what a build on their
// node could reach, and report it.
//
// Rule: it changes nothing. An upload that it begins is cancelled, and what it dials is sent
// nothing.
package probe
