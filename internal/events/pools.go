package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about MachineConfigPools. RenderDegraded and StreamNotice have that of the
// condition.
const (
	// ReasonRenderedConfigGenerated means that a rendered MachineConfig was created.
	// openshift/machine-config-operator has the same event.
	ReasonRenderedConfigGenerated = "RenderedConfigGenerated"
	// ReasonRenderedConfigChanged means that a pool's nodes are to get another rendered
	// MachineConfig.
	ReasonRenderedConfigChanged = "RenderedConfigChanged"
	// ReasonRenderedConfigRepaired means that someone had edited a rendered MachineConfig, and the
	// edit was undone.
	ReasonRenderedConfigRepaired = "RenderedConfigRepaired"
	// ReasonRenderRecovered means that a pool's MachineConfigs can be rendered again.
	ReasonRenderRecovered = "RenderRecovered"
	// ReasonPoliciesMissing means that admission policies are not enforced.
	ReasonPoliciesMissing = "PoliciesMissing"
)

// actionRender is the action of all of them but PoliciesMissing, whose is actionCheck.
const (
	actionRender = "Render"
	actionCheck  = "Check"
)

// RenderedConfigGenerated means that a rendered MachineConfig was created, from as many
// MachineConfigs.
func RenderedConfigGenerated(name string, sources int) Event {
	return Event{corev1.EventTypeNormal, ReasonRenderedConfigGenerated, actionRender, fmt.Sprintf("%s successfully generated from %d MachineConfigs", name, sources)}
}

// RenderedConfigChanged means that a pool's nodes are to get another rendered MachineConfig; from
// is empty for the first one.
func RenderedConfigChanged(from, to string) Event {
	text := fmt.Sprintf("The pool's configuration is %s", to)
	if from != "" {
		text = fmt.Sprintf("The pool's configuration changed from %s to %s", from, to)
	}
	return Event{corev1.EventTypeNormal, ReasonRenderedConfigChanged, actionRender, text}
}

// RenderedConfigRepaired means that someone had edited a rendered MachineConfig, and the edit was
// undone.
func RenderedConfigRepaired(name string) Event {
	return Event{
		corev1.EventTypeWarning, ReasonRenderedConfigRepaired, actionRender,
		fmt.Sprintf("%s was edited and has been restored: do not edit rendered MachineConfigs, write another MachineConfig that the pool selects", name),
	}
}

// RenderDegraded means that a pool's MachineConfigs cannot be rendered, with the reason and the
// message of the condition.
func RenderDegraded(reason, message string) Event {
	return Event{corev1.EventTypeWarning, reason, actionRender, message}
}

// PoliciesMissing means that admission policies are not enforced, with the message of the
// condition.
func PoliciesMissing(message string) Event {
	return Event{corev1.EventTypeWarning, ReasonPoliciesMissing, actionCheck, message}
}

// StreamNotice means that a pool's stream needs someone's attention, with the reason and the
// message of the condition.
func StreamNotice(reason, message string) Event {
	return Event{corev1.EventTypeWarning, reason, actionRender, message}
}

// RenderRecovered means that a pool's MachineConfigs can be rendered again.
func RenderRecovered() Event {
	return Event{corev1.EventTypeNormal, ReasonRenderRecovered, actionRender, "The pool's MachineConfigs can be rendered again"}
}
