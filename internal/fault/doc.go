// Package fault says what an error means for whoever repeats the work: return soon, return when
// someone else has acted, or don't return until a person has changed something.
//
// Rule: a class is given once, where the fact is known (the registry adapter knows a 404, the
// backend knows an eviction), and found with errors.As through any wrapping, the outermost mark
// first. An error that no one marked is Transient. The package also makes the text of errors fit
// for a condition: short, printable and without secrets of URLs. It imports the standard library
// only.
package fault
