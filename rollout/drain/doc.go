// Package drain empties nodes of their pods before an update, and lets pods return after it. The
// node agent asks for either by an annotation of its Node, and this package answers by another.
//
// Rule: level-based. A reconcile lists the pods of one node, evicts those that should leave, says
// what keeps them there, and ends; the next reconcile sees the pods that are left. Which pods were
// there first is all that it remembers, and a restart may forget that. The rules of `kubectl drain`
// are by hand, because its library adds 32 MB to the program; docs/adr/0056 says more.
package drain
