package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about rollouts and node agents. Those up to Completed are also
// openshift/machine-config-operator's.
const (
	// ReasonSetDesiredConfig means that a node was told to change to a configuration.
	ReasonSetDesiredConfig = "SetDesiredConfig"
	// ReasonSetDesiredConfigAndOSImage means that a node was told to change to a configuration and
	// an image.
	ReasonSetDesiredConfigAndOSImage = "SetDesiredConfigAndOSImage"
	// ReasonPoolUpdating means that the first node of a pool was told to change.
	ReasonPoolUpdating = "Updating"
	// ReasonPoolCompleted means that all nodes of a pool have what they should have.
	ReasonPoolCompleted = "Completed"
	// ReasonConfigDriftDetected means that files of a node are not as its image and its
	// configuration have them.
	ReasonConfigDriftDetected = "ConfigDriftDetected"
	// ReasonImageHeldBack means that a check keeps an image from a pool's nodes.
	ReasonImageHeldBack = "ImageHeldBack"
	// ReasonNodeRolledBack means that a node failed with a target, and goes back to what it had.
	ReasonNodeRolledBack = "NodeRolledBack"
	// ReasonRolloutHalted means that too many nodes failed, so that no further node is moved.
	ReasonRolloutHalted = "RolloutHalted"
	// ReasonWebhookFailed means that a webhook could not be told about a rollout.
	ReasonWebhookFailed = "WebhookFailed"
	// ReasonSilenceFailed means that alerts of nodes that change could not be silenced.
	ReasonSilenceFailed = "SilenceFailed"
	// ReasonRolloutResumed means that a person resumed a halted rollout.
	ReasonRolloutResumed = "RolloutResumed"
	// ReasonWindowIgnored means that a node was moved outside of the maintenance windows, as a
	// person asked.
	ReasonWindowIgnored = "WindowIgnored"
)

const actionRollout = "Rollout"

// NodeTargeted means that a node was told to change. The image may be empty.
func NodeTargeted(node, config, image string) Event {
	if image == "" {
		return Event{corev1.EventTypeNormal, ReasonSetDesiredConfig, actionRollout, fmt.Sprintf("Targeted node %s to MachineConfig: %s", node, config)}
	}
	return Event{
		corev1.EventTypeNormal, ReasonSetDesiredConfigAndOSImage, actionRollout,
		fmt.Sprintf("Targeted node %s to MachineConfig: %s and OS image: %s", node, config, image),
	}
}

// NodeRolledBack means that a node failed, and was told to go back. The image may be empty.
func NodeRolledBack(node, config, image, why string) Event {
	text := fmt.Sprintf("Node %s goes back to MachineConfig %s", node, config)
	if image != "" {
		text += " and OS image " + image
	}
	return Event{corev1.EventTypeWarning, ReasonNodeRolledBack, actionRollout, text + ": " + why}
}

// AfterHalt is what a person does about a rollout that is halted, to be said after why it is.
const AfterHalt = ". Correct the image, or resume with the annotation machineconfiguration.openshift.io/resume-rollout of the pool"

// RolloutHalted means that too many nodes failed.
func RolloutHalted(why string) Event {
	return Event{
		corev1.EventTypeWarning, ReasonRolloutHalted, actionRollout,
		"The rollout is halted: " + why + AfterHalt,
	}
}

// WebhookFailed means that a webhook was not told about an event of a rollout. It is not tried
// again.
func WebhookFailed(event, why string) Event {
	return Event{corev1.EventTypeWarning, ReasonWebhookFailed, actionRollout, fmt.Sprintf("The webhook was not notified of %s: %s", event, why)}
}

// SilenceFailed means that alerts of nodes that change are not silenced. It is tried again.
func SilenceFailed(why string) Event {
	return Event{corev1.EventTypeWarning, ReasonSilenceFailed, actionRollout, "Alerts of nodes that change are not silenced: " + why}
}

// RolloutResumed means that a person resumed a halted rollout.
func RolloutResumed(pool string) Event {
	return Event{corev1.EventTypeNormal, ReasonRolloutResumed, actionRollout, fmt.Sprintf("The rollout of pool %s is resumed by its annotation", pool)}
}

// WindowIgnored means that a node was moved outside of the maintenance windows, with the reason of
// the person who asked for it.
func WindowIgnored(node, reason string) Event {
	return Event{
		corev1.EventTypeWarning, ReasonWindowIgnored, actionRollout,
		fmt.Sprintf("Node %s changes outside of the maintenance windows: %s", node, reason),
	}
}

// PoolUpdating means that the first node of a pool was told to change.
func PoolUpdating(pool string) Event {
	return Event{corev1.EventTypeNormal, ReasonPoolUpdating, actionRollout, fmt.Sprintf("The nodes of pool %s are being updated", pool)}
}

// PoolCompleted means that all nodes of a pool have what they should have.
func PoolCompleted(pool string) Event {
	return Event{corev1.EventTypeNormal, ReasonPoolCompleted, actionRollout, fmt.Sprintf("All nodes of pool %s are updated", pool)}
}

// ImageHeldBack means that a check keeps an image from a pool's nodes, and which one.
func ImageHeldBack(why string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageHeldBack, actionRollout, "The image does not reach the nodes: " + why}
}

// ConfigDriftDetected means that files of a node are not as they should be, and which.
func ConfigDriftDetected(what string) Event {
	return Event{corev1.EventTypeWarning, ReasonConfigDriftDetected, "Verify", what}
}
