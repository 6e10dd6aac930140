// Package health evaluates the health checks of a pool, which are expressions in CEL, on Nodes.
//
// Rule: pure. An expression costs at most costLimit, whatever it says, and what it says about a
// Node is remembered for as long as the Node is the same, and what the expression reads beside it.
package health
