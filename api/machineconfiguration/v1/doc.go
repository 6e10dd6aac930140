// Package v1 holds the kinds of machineconfiguration.openshift.io/v1 that Layerwright reads and
// writes.
//
// Each is a strict superset of the kind that github.com/openshift/api publishes under the same
// name: every object that is valid there is valid here and means the same.
// docs/adr/0003-api-superset.md says which types are imported from there, which are written here,
// and why; a test compares the two schemas. Enforcement lives in three places, and the comment on
// each field or type says which: the schema and its rules, the admission policies of
// deploy/policies, and the controllers.
//
// Names of objects that the kinds refer to, secrets and ConfigMaps, mean the namespace that
// Layerwright runs in: "layerwright" on plain Kubernetes, "openshift-machine-config-operator" on
// OpenShift.
//
// +kubebuilder:object:generate=true
// +groupName=machineconfiguration.openshift.io
package v1
