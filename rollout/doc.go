// Package rollout moves the nodes of MachineConfigPools to the configuration and image that they
// should have: it gathers what rollout/plan decides from, and carries out what that has decided.
//
// Rule: one reconcile of one pool writes annotations of its Nodes, the spec of their
// MachineConfigNodes, status.osImagePullSpec and status.rollout of the pool, and the Jobs of its
// health checks, and nothing else. Node agents answer by annotations of their own.
package rollout
