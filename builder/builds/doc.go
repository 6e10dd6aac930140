// Package builds makes the images that MachineOSBuilds ask for, each in one or more reconciles that
// can end anywhere and are gone on with.
//
// Rule: a build makes what its object says and decides nothing about what is wanted. The image is
// made by maker, its content by a backend; this package follows them and writes down how far they
// are.
package builds
