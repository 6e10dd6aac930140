// Package pools keeps every MachineConfigPool's rendered configuration and status.
//
// For each pool it joins the MachineConfigs that the pool selects with the images of its stream
// (package machineconfigs does the joining, package streams the choosing), stores the result as a
// rendered MachineConfig, names it in spec.configuration, deletes rendered MachineConfigs that no
// one needs any more, and says in the status how many nodes have what they should have.
//
// Rule: one reconciler writes everything here, and its reconciles are level-based: gather what
// there is, decide with package nodes and the functions in retention.go and status.go, which know
// nothing but their arguments, and write what differs. A reconcile that finds nothing to do writes
// nothing. Nodes are only counted: moving them is the rollout's job, which meets this package in
// spec.configuration and in the node annotations alone.
package pools
