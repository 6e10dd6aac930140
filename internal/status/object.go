package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object is an object of a kind whose status has conditions.
type Object interface {
	client.Object
	// GetConditions gives the conditions of the status.
	GetConditions() []metav1.Condition
	// SetConditions replaces them.
	SetConditions(conditions []metav1.Condition)
}

// Observer is what an Object is besides if its status has an observedGeneration; some published
// kinds have none.
type Observer interface {
	// GetObservedGeneration gives the observedGeneration of the status.
	GetObservedGeneration() int64
	// SetObservedGeneration replaces it.
	SetObservedGeneration(generation int64)
}
