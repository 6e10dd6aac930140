// Package health evaluates the health checks of a pool, which are expressions in CEL, on Nodes.
//
// Rule: pure. An expression costs at most costLimit, whatever it says; what it makes costs by its
// size, and calls that could take much before anyone counts are bounded. What it says about a Node
// is remembered for as long as the Node is the same, and what the expression reads beside it.
package health
