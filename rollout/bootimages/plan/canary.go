package plan

import "time"

// Wave is the move of all resources to one boot image. The first of them is tried alone.
type Wave struct {
	// First is the resource that was updated first; empty while none has been.
	First string
	// Since is when that was.
	Since time.Time
	// IsProven reports whether a machine with the new image has joined the cluster.
	IsProven bool
}

// Wait is how long a resource has to wait for the wave; 0 is that it may be updated now. A canary
// that makes no machine, because no one scales it, must not hold up the others for ever.
func (w Wave) Wait(resource string, now time.Time, soak time.Duration) time.Duration {
	if w.First == "" || w.First == resource || w.IsProven {
		return 0
	}
	return max(0, w.Since.Add(soak).Sub(now))
}
