// Package kargs decides what the kernel command line of a host is to be.
//
// Rule: pure. What a host was installed with stays its own, as does what a person adds there: a
// record says what of a command line is ours, and what was taken from it. It is kept for each
// command line, because a rollback brings back an earlier one.
package kargs
