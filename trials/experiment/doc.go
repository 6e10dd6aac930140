// Package experiment makes the image that a pool would get on another stream, and compares what the
// pool has with that.
//
// Rule: it knows how images are made, and writes no object of the cluster but what builds content.
// Who asks says what becomes of the report.
package experiment
