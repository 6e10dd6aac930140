// Package trials tries the move of a pool to another stream, for MachineOSConfigs with the
// annotation try-stream: it makes the image that the pool would get, under a tag of its own, and
// reports what would change.
//
// Rule: it makes no MachineOSBuild and no MachineOSImage, and gives no tag that anything else
// reads, so nothing that it does can reach a node. What a report says is decided by trial below it,
// which the program's trial command uses too.
package trials
