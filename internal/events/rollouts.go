package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about rollouts. All but ImageHeldBack are also those of
// openshift/machine-config-operator.
const (
	// ReasonSetDesiredConfig is that a node was told to change to a configuration.
	ReasonSetDesiredConfig = "SetDesiredConfig"
	// ReasonSetDesiredConfigAndOSImage is that a node was told to change to a configuration and an
	// image.
	ReasonSetDesiredConfigAndOSImage = "SetDesiredConfigAndOSImage"
	// ReasonPoolUpdating is that the first node of a pool was told to change.
	ReasonPoolUpdating = "Updating"
	// ReasonPoolCompleted is that all nodes of a pool have what they should have.
	ReasonPoolCompleted = "Completed"
	// ReasonImageHeldBack is that a check keeps an image from a pool's nodes.
	ReasonImageHeldBack = "ImageHeldBack"
)

const actionRollout = "Rollout"

// NodeTargeted is that a node was told to change. The image may be empty.
func NodeTargeted(node, config, image string) Event {
	if image == "" {
		return Event{corev1.EventTypeNormal, ReasonSetDesiredConfig, actionRollout, fmt.Sprintf("Targeted node %s to MachineConfig: %s", node, config)}
	}
	return Event{
		corev1.EventTypeNormal, ReasonSetDesiredConfigAndOSImage, actionRollout,
		fmt.Sprintf("Targeted node %s to MachineConfig: %s and OS image: %s", node, config, image),
	}
}

// PoolUpdating is that the first node of a pool was told to change.
func PoolUpdating(pool string) Event {
	return Event{corev1.EventTypeNormal, ReasonPoolUpdating, actionRollout, fmt.Sprintf("The nodes of pool %s are being updated", pool)}
}

// PoolCompleted is that all nodes of a pool have what they should have.
func PoolCompleted(pool string) Event {
	return Event{corev1.EventTypeNormal, ReasonPoolCompleted, actionRollout, fmt.Sprintf("All nodes of pool %s are updated", pool)}
}

// ImageHeldBack is that a check keeps an image from a pool's nodes, and which one.
func ImageHeldBack(why string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageHeldBack, actionRollout, "The image does not reach the nodes: " + why}
}
