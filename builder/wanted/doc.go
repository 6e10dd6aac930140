// Package wanted finds out which image a MachineOSConfig wants, and whether a registry has it
// already, and says what a build is to make (Order, Describe). What was found is remembered, since
// many reconciles follow one change, and handed on to builds.
//
// Rule: it writes no object of the cluster. What it forgets is found again; what it finds wrong is
// an answer like any other.
package wanted
