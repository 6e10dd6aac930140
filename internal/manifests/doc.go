// Package manifests reads Kubernetes objects from files, without a cluster, as kubectl
// apply --filename would.
//
// Rule: what is read is either understood to the last field, or named: an unknown field of a known
// kind is an error, and objects of other kinds are listed for whoever asks.
package manifests
