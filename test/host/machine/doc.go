// Package machine boots a disk of ostree's without a virtual machine: the deployment that a boot
// loader would take becomes a root below a folder, by ostree's own ostree-prepare-root, in the
// mount namespace that it is called in.
//
// Rule: how a boot happens is all it knows. What is deployed is the disk's.
package machine
