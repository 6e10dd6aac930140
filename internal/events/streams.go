package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about the OSImageStream. What is wrong with its sources has the type of the
// condition.
const (
	// ReasonStreamsChanged means that pools have other streams, or streams other images, than
	// before.
	ReasonStreamsChanged = "StreamsChanged"
	// ReasonStreamsCreated means that the OSImageStream was made, because a source gives streams.
	ReasonStreamsCreated = "StreamsCreated"
)

// actionDiscover is the action of all of them.
const actionDiscover = "Discover"

// StreamsChanged means that the available streams changed; change says how.
func StreamsChanged(change string) Event {
	return Event{corev1.EventTypeNormal, ReasonStreamsChanged, actionDiscover, change}
}

// StreamsCreated means that the OSImageStream was made with a default, for a reason.
func StreamsCreated(defaultStream, reason string) Event {
	return Event{
		corev1.EventTypeNormal, ReasonStreamsCreated, actionDiscover,
		fmt.Sprintf("Made with the default stream %q: %s", defaultStream, reason),
	}
}

// StreamsChecked means that registries were asked again for the images of streams.
func StreamsChecked() Event {
	return Event{corev1.EventTypeNormal, ReasonImagesChecked, actionDiscover, "The registries were asked again, as the annotation requests"}
}

// StreamsProblem means that a condition of the OSImageStream became true, or says another thing.
func StreamsProblem(condition, message string) Event {
	return Event{corev1.EventTypeWarning, condition, actionDiscover, message}
}
