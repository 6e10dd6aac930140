// Package signaturepolicy makes nodes accept images of certain repositories only if they are signed
// with certain keys, or by a certain identity: as the files that podman, bootc and rpm-ostree read,
// in a MachineConfig, and as the ClusterImagePolicy that OpenShift makes these files of.
//
// It is pure: what it says follows from its arguments alone.
package signaturepolicy
