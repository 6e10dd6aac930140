// Package pki makes the certificates, keys and kubeconfig files of a test
// cluster. What exists and still fits is kept, so that a cluster that is
// brought up again keeps its identity.
package pki
