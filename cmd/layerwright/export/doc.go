// Package export says what a cluster has of a pool in the terms of other tools: objects without
// what the API server adds, ConfigMaps of files, a podman command, a pod.
//
// Rule: pure. It gets objects and gives objects or text; what a form cannot say is returned beside
// it and never left out without a word.
package export
