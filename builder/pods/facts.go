package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/layerwright/layerwright/builder/backend"
)

// Facts are everything that is known of a build's pods.
type Facts struct {
	Pods []corev1.Pod
	// Warnings are the newest Warning events about objects that don't get on, by UID.
	Warnings map[types.UID]string
	// Missing are the objects that pods which don't get on want to mount and that are not there, by
	// the pod's UID.
	Missing map[types.UID][]Object
	// Progress is how far running steps are, by the pod's UID.
	Progress map[types.UID]backend.Progress
	// LimitRanges are the names of those in the namespace, where one refuses a pod.
	LimitRanges []string
	// Silent are the nodes that don't answer.
	Silent map[string]bool
	Now    time.Time
}

// Object is one that a pod mounts.
type Object struct{ Kind, Name string }

// Kinds of objects that pods mount.
const (
	KindSecret    = "Secret"
	KindConfigMap = "ConfigMap"
)

// When to look again at what no watch tells about.
const (
	WhileWaiting = 10 * time.Second // for secrets and events
	whileRunning = 5 * time.Second  // for progress in a log
	// whileAsking is how long a node may take to give the end of a log.
	whileAsking = 5 * time.Second
	// Settling is how long the cluster may take to make a pod, or to start a container, before it
	// is asked what is in the way.
	Settling = 5 * time.Second
	// lost is how long after its last moment a pod may still be there on a node that answers,
	// before it is given up.
	lost = time.Minute
)

// Earliest is the earlier of two times of which zero means none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sooner is the shorter of two times of which zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func duration(seconds *int64) time.Duration {
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}
