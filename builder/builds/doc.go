// Package builds reconciles MachineOSBuilds: each is made in one or more reconciles that can end
// anywhere and are gone on with.
//
// Rule: a build makes what its object says and decides nothing about what is wanted. This package
// says who may begin, limits attempts, and writes down how far a build is. Its image is brought
// into the registry by making, told about by report, and removed by cleanup.
package builds
