package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The methods here let code that works on the status of any kind work on this one.

// GetConditions gives the conditions of the status.
func (c *MachineConfiguration) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (c *MachineConfiguration) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// GetObservedGeneration gives the generation that the status is about.
func (c *MachineConfiguration) GetObservedGeneration() int64 { return c.Status.ObservedGeneration }

// SetObservedGeneration replaces the generation that the status is about.
func (c *MachineConfiguration) SetObservedGeneration(generation int64) {
	c.Status.ObservedGeneration = generation
}
