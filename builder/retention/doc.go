// Package retention removes the images of builds from registries, and knows which of them
// something still uses.
//
// Rule: an image that a node, a pool, a MachineOSConfig or another build names is not removed.
package retention
