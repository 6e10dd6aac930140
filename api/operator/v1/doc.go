// Package v1 holds MachineConfiguration, the kind of operator.openshift.io/v1 with which
// administrators steer boot images and what updates do to running nodes.
//
// It is a strict superset of the kind that github.com/openshift/api publishes. Most of its parts
// are imported from there; docs/adr/0003-api-superset.md says why the rest is not.
//
// +kubebuilder:object:generate=true
// +groupName=operator.openshift.io
package v1
