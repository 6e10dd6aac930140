// Package eviction says which pods of a node a drain evicts, and which budgets protect them. The
// drain controller does what it says, and "layerwright rollout --plan" says it before.
//
// Rule: pure. It reads plain objects and is told the time.
package eviction
