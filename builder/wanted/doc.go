// Package wanted finds out which image a MachineOSConfig wants, and whether a registry has it
// already. What was found is remembered, since many reconciles follow one change.
//
// Rule: it reads and writes nothing. What it forgets is found again; what it finds wrong is an
// answer like any other.
package wanted
