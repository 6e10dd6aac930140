// Package runs knows which builds this process works on right now, and which gets the next slot.
//
// Rule: nothing is decided by it but who goes first. After a restart it is empty, and the status of
// the builds says what is to be done. It is by hand, because a work queue hands work to workers of
// its own, and here reconcilers that work already ask for a slot.
package runs
