// Package forecast says what a rollout would do to the nodes of a pool, and what is in its way,
// before the first node is drained.
//
// Rule: pure. rollout/plan decides each step as it does in the controller, of nodes that do at once
// what they are told and stay healthy; rollout/drain/eviction says which pods leave, and view names
// what a reason means. It asks no cluster, and is told the time.
package forecast
