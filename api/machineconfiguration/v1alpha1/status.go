package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The methods here let code that works on the status of any kind work on these.

// GetConditions gives the conditions of the status.
func (i *MachineOSImage) GetConditions() []metav1.Condition { return i.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (i *MachineOSImage) SetConditions(conditions []metav1.Condition) {
	i.Status.Conditions = conditions
}

// GetObservedGeneration gives the generation that the status is about.
func (i *MachineOSImage) GetObservedGeneration() int64 { return i.Status.ObservedGeneration }

// SetObservedGeneration replaces the generation that the status is about.
func (i *MachineOSImage) SetObservedGeneration(generation int64) {
	i.Status.ObservedGeneration = generation
}

// GetConditions gives the conditions of the status.
func (h *BootImageHistory) GetConditions() []metav1.Condition { return h.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (h *BootImageHistory) SetConditions(conditions []metav1.Condition) {
	h.Status.Conditions = conditions
}

// GetObservedGeneration gives the generation that the status is about.
func (h *BootImageHistory) GetObservedGeneration() int64 { return h.Status.ObservedGeneration }

// SetObservedGeneration replaces the generation that the status is about.
func (h *BootImageHistory) SetObservedGeneration(generation int64) {
	h.Status.ObservedGeneration = generation
}
