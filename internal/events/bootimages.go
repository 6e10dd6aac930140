package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// ReasonBootImageUpdated means that a machine resource was given another boot image.
const ReasonBootImageUpdated = "BootImageUpdated"

// actionUpdateBootImage is the action of all events about boot images.
const actionUpdateBootImage = "UpdateBootImage"

// BootImageUpdated means that a machine resource was given another boot image.
func BootImageUpdated(from, to, version string) Event {
	return Event{
		corev1.EventTypeNormal, ReasonBootImageUpdated, actionUpdateBootImage, fmt.Sprintf("Boot image %s (version %s) instead of %s", to, version, from),
	}
}

// BootImageFailed means that the boot image of a machine resource can't be updated.
func BootImageFailed(reason, message string) Event {
	return Event{corev1.EventTypeWarning, reason, actionUpdateBootImage, message}
}
