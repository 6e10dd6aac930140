package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BuildTimes are buildStart and buildEnd of a MachineOSBuild as the API accepts them: stored in
// whole seconds, each set once, and the end strictly after the start, so that even a build that
// took no time at all lasts a second.
type BuildTimes struct {
	// Start is nil before the build began.
	Start *metav1.Time
	// End is nil before it ended.
	End *metav1.Time
}

// Started is the times of a build that has begun, now if it is not known to have begun before.
func (t BuildTimes) Started(now time.Time) BuildTimes {
	if t.Start == nil {
		start := Second(now)
		t.Start = &start
	}
	return t
}

// Ended is the times of a build that has ended, now if it is not known to have ended before. A
// build that was never seen to begin (its image was there already) begins now. The end is at least
// a second after the start, whatever the clock says: it may have been another machine's.
func (t BuildTimes) Ended(now time.Time) BuildTimes {
	if t.End != nil {
		return t
	}
	t = t.Started(now)
	end, earliest := Second(now), metav1.NewTime(Second(t.Start.Time).Add(time.Second))
	if end.Before(&earliest) {
		end = earliest
	}
	t.End = &end
	return t
}
