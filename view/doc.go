// Package view makes one tree of all objects of a cluster: what is wanted, what is, which step it
// is at and since when, what it waits for, who acts next, and the command that helps. Command, page
// and tests show the same tree.
//
// Rule: pure. It reads plain objects and decides nothing: rollout/plan has decided why a node does
// not move, and written it down. It reads no clock, asks no cluster, and changes nothing. Texts are
// those of the objects; Text takes out of them what controls a terminal.
package view
