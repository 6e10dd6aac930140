// Package events holds what Layerwright's controllers tell about objects as Kubernetes events.
//
// Rule: every event is made by a function of this package, so that the list of events is this
// package. Its reason is that of the condition it goes with, where there is one. Who publishes an
// event has seen a transition, or has just done what it speaks of: a reconcile that changes nothing
// publishes nothing.
package events
