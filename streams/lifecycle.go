package streams

import (
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Effective is how far a stream is in its life on a day: what its lifecycle says, or its dates
// where they say more. A date counts from its beginning in UTC. One that is omitted, or is no day
// such as 2027-05-31, says nothing; ParseDay tells which. No lifecycle, and one that this version
// does not know, is Supported. It never is empty.
func Effective(lifecycle mcfgv1.StreamLifecycle, deprecationDate, endOfLifeDate string, today time.Time) mcfgv1.StreamLifecycle {
	switch {
	case lifecycle == mcfgv1.StreamEndOfLife || reached(endOfLifeDate, today):
		return mcfgv1.StreamEndOfLife
	case lifecycle == mcfgv1.StreamDeprecated || reached(deprecationDate, today):
		return mcfgv1.StreamDeprecated
	}
	return mcfgv1.StreamSupported
}

// ParseDay reads a day such as 2027-05-31, as its beginning in UTC.
func ParseDay(day string) (time.Time, error) {
	return time.Parse(time.DateOnly, day) //nolint:wrapcheck // names the text and what it should be
}

// NextChange is the moment after now at which a date of a stream changes what Effective says, and
// false when none will.
func NextChange(deprecationDate, endOfLifeDate string, now time.Time) (time.Time, bool) {
	var next time.Time
	for _, day := range []string{deprecationDate, endOfLifeDate} {
		at, err := ParseDay(day)
		if err == nil && at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}

// reached reports whether a day has begun.
func reached(day string, now time.Time) bool {
	at, err := ParseDay(day)
	return err == nil && !now.Before(at)
}
