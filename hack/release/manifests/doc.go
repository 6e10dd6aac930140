// Package manifests writes what installs a release: manifests for kubectl, a Helm chart and an OLM
// bundle. All of them are generated from the kustomizations of deploy/, which the program carries,
// so that they need no checkout and cannot differ from each other.
package manifests
