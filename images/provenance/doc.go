// Package provenance says how an image was made, as an SLSA provenance of version 1: from what its
// MachineOSBuild says, so that the same can be said again later. What is not known is left out.
//
// It reads nothing and asks no one; whoever calls it brings what there is to know.
package provenance
