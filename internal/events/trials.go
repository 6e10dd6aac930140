package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about trials of streams, on MachineOSConfigs.
const (
	// ReasonStreamTried means that a trial has a report, and nothing that is known is in the way of
	// the move.
	ReasonStreamTried = "StreamTried"
	// ReasonStreamBlocked means that a trial has a report, and something is in the way.
	ReasonStreamBlocked = "StreamBlocked"
	// ReasonStreamTrialFailed means that there can be no report before someone acts.
	ReasonStreamTrialFailed = "StreamTrialFailed"
)

const actionTry = "TryStream"

// StreamTried means that a trial has a report, with its summary.
func StreamTried(stream, summary string, isBlocked bool) Event {
	text := fmt.Sprintf("A move to stream %s was tried: %s", stream, summary)
	if isBlocked {
		return Event{corev1.EventTypeWarning, ReasonStreamBlocked, actionTry, text}
	}
	return Event{corev1.EventTypeNormal, ReasonStreamTried, actionTry, text}
}

// StreamTrialFailed means that there can be no report, and why.
func StreamTrialFailed(stream, why string) Event {
	return Event{corev1.EventTypeWarning, ReasonStreamTrialFailed, actionTry, fmt.Sprintf("A move to stream %s could not be tried: %s", stream, why)}
}
