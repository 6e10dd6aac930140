package plan

import (
	"cmp"
	"slices"
	"time"
)

// Wave is the move of all resources to one boot image. The first of them is tried alone.
type Wave struct {
	// First is the resource that is, or was, updated first.
	First string
	// Since is when that was; zero before.
	Since time.Time
	// IsProven reports whether a machine with the new image has joined the cluster.
	IsProven bool
}

// Wait is how long a resource has to wait for the wave; 0 is that it may be updated now. A canary
// that makes no machine, because no one scales it, must not hold up the others for ever.
func (w Wave) Wait(resource string, now time.Time, soak time.Duration) time.Duration {
	switch {
	case w.First == resource || w.IsProven:
		return 0
	case w.Since.IsZero():
		return soak
	}
	return max(0, w.Since.Add(soak).Sub(now))
}

// Candidate is a resource that waits for the boot image of a wave.
type Candidate struct {
	Resource string
	// Replicas are the machines that it should have.
	Replicas int64
	// IsControlPlane reports whether its machines serve the control plane.
	IsControlPlane bool
}

// Canary is the resource that loses least if a boot image does not work, and can show that it does:
// the smallest one with machines, of workers if there is one. It is empty without candidates.
func Canary(all []Candidate) string {
	last := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(last(a.Replicas == 0), last(b.Replicas == 0)), cmp.Compare(last(a.IsControlPlane), last(b.IsControlPlane)),
			cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Resource, b.Resource),
		)
	}).Resource
}
