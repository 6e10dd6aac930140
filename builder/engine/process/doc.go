// Package process is the process around a step: a worker in namespaces of its own, and one that
// watches it, passes on signals and leaves a report where the worker could not. It also is what
// Buildah starts this program for.
package process
