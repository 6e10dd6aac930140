// Package pooltag decides when the tag of a pool moves to an image. The tag is for people: nodes
// get digests.
//
// Rule: it decides from objects alone.
package pooltag
