// Package jobs is the backend that builds with Kubernetes Jobs, one for each architecture.
//
// Rule: spec.go makes objects of a backend.Spec, observe.go makes a backend.State of objects, and
// both are pure; backend.go and gather.go ask the API server. A Job retries by its own pod failure
// policy, so nothing here counts attempts, waits or remembers: everything that is known of a build
// is in its objects.
package jobs
