// Package images is what happens to an image once it is in the registry: it is attested, signed and
// verified, and said to be ready for nodes.
//
// Rule: it acts on MachineOSImages, and needs nothing of who made them. How an image was made it
// reads from the image's MachineOSBuild and from what its caller hands in.
package images
