package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The methods here let code that works on the status of any kind work on these.

// GetConditions gives the conditions of the status.
func (c *MachineOSConfig) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (c *MachineOSConfig) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// GetObservedGeneration gives the generation that the status is about.
func (c *MachineOSConfig) GetObservedGeneration() int64 { return c.Status.ObservedGeneration }

// SetObservedGeneration replaces the generation that the status is about.
func (c *MachineOSConfig) SetObservedGeneration(generation int64) {
	c.Status.ObservedGeneration = generation
}

// GetConditions gives the conditions of the status.
func (b *MachineOSBuild) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (b *MachineOSBuild) SetConditions(conditions []metav1.Condition) {
	b.Status.Conditions = conditions
}

// GetConditions gives the conditions of the status.
func (n *MachineConfigNode) GetConditions() []metav1.Condition { return n.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (n *MachineConfigNode) SetConditions(conditions []metav1.Condition) {
	n.Status.Conditions = conditions
}

// GetObservedGeneration gives the generation that the status is about.
func (n *MachineConfigNode) GetObservedGeneration() int64 { return n.Status.ObservedGeneration }

// SetObservedGeneration replaces the generation that the status is about.
func (n *MachineConfigNode) SetObservedGeneration(generation int64) {
	n.Status.ObservedGeneration = generation
}

// GetConditions gives the conditions of the status.
func (s *OSImageStream) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (s *OSImageStream) SetConditions(conditions []metav1.Condition) {
	s.Status.Conditions = conditions
}

// GetObservedGeneration gives the generation that the status is about.
func (s *OSImageStream) GetObservedGeneration() int64 { return s.Status.ObservedGeneration }

// SetObservedGeneration replaces the generation that the status is about.
func (s *OSImageStream) SetObservedGeneration(generation int64) {
	s.Status.ObservedGeneration = generation
}

// GetConditions gives the conditions of the status. The published type of a pool's conditions has
// no observedGeneration.
func (p *MachineConfigPool) GetConditions() []metav1.Condition {
	if p.Status.Conditions == nil {
		return nil
	}
	conditions := make([]metav1.Condition, 0, len(p.Status.Conditions))
	for _, c := range p.Status.Conditions {
		conditions = append(conditions, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return conditions
}

// SetConditions replaces the conditions of the status; what the published type has no field for is
// left out.
func (p *MachineConfigPool) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = make([]MachineConfigPoolCondition, 0, len(conditions))
	for _, c := range conditions {
		p.Status.Conditions = append(p.Status.Conditions, MachineConfigPoolCondition{
			Type: MachineConfigPoolConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: c.LastTransitionTime,
		})
	}
}

// GetObservedGeneration gives the generation that the status is about.
func (p *MachineConfigPool) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// SetObservedGeneration replaces the generation that the status is about.
func (p *MachineConfigPool) SetObservedGeneration(generation int64) {
	p.Status.ObservedGeneration = generation
}
