// Package names holds the names of the objects that Layerwright creates in a cluster.
//
// They are kept in one place because manifests, RBAC rules and code must agree on them; annotation
// and label keys are part of the API and live in the api packages instead. The package imports
// nothing of ours.
package names
