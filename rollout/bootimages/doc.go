// Package bootimages keeps the boot images of machines that will join later in step with the stream
// of the pool that they will join.
//
// Rule: each machine resource (MachineSet, ControlPlaneMachineSet, MachineDeployment) is reconciled
// by itself, and package plan decides what becomes of it. What all of them depend on is gathered
// once and kept until a watch says that it changed. What came of each is in the ledger, from which
// the status of the MachineConfiguration, the metrics and the order of updates follow; it is filled
// anew after a restart, and nothing is decided by it that the history of a resource could not say
// again.
package bootimages
