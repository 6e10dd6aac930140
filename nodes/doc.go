// Package nodes says what a node is to Layerwright: which MachineConfigPool it belongs to, what it
// has and should have, and whether it is available.
//
// Rule: pure, and the only place that knows. Whoever counts nodes, builds for their architectures,
// or moves them means the same ones.
package nodes
