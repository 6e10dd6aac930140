// Package members says which nodes belong to which MachineConfigPool.
//
// Rule: pure, and the only place that knows. Who counts nodes, who builds for their architectures and who moves them mean the same ones.
package members
