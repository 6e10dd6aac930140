package events

import corev1 "k8s.io/api/core/v1"

// actionDrain is the action of events about drains.
const actionDrain = "Drain"

// DrainBlocked means that pods can't be evicted from a node, with the reason and the message of the
// condition.
func DrainBlocked(reason, message string) Event {
	return Event{corev1.EventTypeWarning, reason, actionDrain, message}
}
