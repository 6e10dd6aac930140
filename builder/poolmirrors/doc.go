// Package poolmirrors says where the images of a pool are read: as registries.conf of the pool's
// rendered configuration says, which its nodes and its builds go by, and else as the mirror sets of
// the cluster say.
//
// Rule: both are read each time, so that what is said now counts. What a rendered configuration
// says is remembered, since its name stands for its content.
package poolmirrors
