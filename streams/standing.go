package streams

import (
	"cmp"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Standing is how far a stream that a pool uses is in its life, and where the pool should go.
type Standing struct {
	// Stream is its name.
	Stream string
	// Lifecycle is the effective one; EndOfLife of a stream that is no longer available.
	Lifecycle mcfgv1.StreamLifecycle
	// Removed reports whether the stream is no longer available.
	Removed bool
	// Successor is the stream of the next major version that is available and alive; empty where no
	// name tells one.
	Successor string
}

// StandingOf says how far a stream is in its life now. While nothing is known of any stream, it is
// Supported.
func StandingOf(streams *mcfgv1.OSImageStream, name string, now time.Time) Standing {
	s := Standing{Stream: name, Lifecycle: mcfgv1.StreamSupported}
	if !listsAny(streams) {
		return s
	}
	if set := find(streams, name); set != nil {
		s.Lifecycle = effective(set, now)
	} else {
		s.Lifecycle, s.Removed = mcfgv1.StreamEndOfLife, true
	}
	if s.Lifecycle != mcfgv1.StreamSupported {
		s.Successor = successor(streams, name, now)
	}
	return s
}

// InUse are the streams that a pool uses: the one that its configuration is of and, until its nodes
// have all left it, the one that they were on.
func InUse(pool *mcfgv1.MachineConfigPool) []string {
	var names []string
	for _, name := range []string{pool.Annotations[mcfgv1.AnnotationRememberedStream], pool.Status.OSImageStream.Name} {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Following is the stream that a pool goes by as far as the two pools alone say; empty where they
// do not.
func Following(pool, worker *mcfgv1.MachineConfigPool) string {
	return cmp.Or(Subject{Pool: pool, Worker: worker}.named().Name, Recorded(pool))
}

// NextChangeOf is the moment after now at which one of the named streams changes its lifecycle by
// date, and false when none will.
func NextChangeOf(streams *mcfgv1.OSImageStream, names []string, now time.Time) (next time.Time, ok bool) {
	for _, name := range names {
		set := find(streams, name)
		if set == nil {
			continue
		}
		if at, changes := NextChange(set.DeprecationDate, set.EndOfLifeDate, now); changes && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	return next, ok
}

func effective(set *mcfgv1.OSImageStreamSet, now time.Time) mcfgv1.StreamLifecycle {
	return Effective(set.Lifecycle, set.DeprecationDate, set.EndOfLifeDate, now)
}

// candidate is a stream that could come after another one.
type candidate struct {
	name                             string
	major                            int
	isDeprecated, isSpelledOtherwise bool
}

// successor is the stream that comes after one: of its family, of the lowest major version above
// its own, Supported before Deprecated, and spelled as it is.
func successor(streams *mcfgv1.OSImageStream, name string, now time.Time) string {
	family, major, ok := parse(name)
	if !ok {
		return ""
	}
	var best candidate
	for i := range streams.Status.AvailableStreams {
		set := &streams.Status.AvailableStreams[i]
		f, m, ok := parse(set.Name)
		if !ok || f != family || m <= major || best.name != "" && m > best.major {
			continue
		}
		lifecycle := effective(set, now)
		c := candidate{set.Name, m, lifecycle == mcfgv1.StreamDeprecated, shape(set.Name) != shape(name)}
		if lifecycle != mcfgv1.StreamEndOfLife && (best.name == "" || c.compare(best) < 0) {
			best = c
		}
	}
	return best.name
}

func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(c.major, other.major), falseFirst(c.isDeprecated, other.isDeprecated),
		falseFirst(c.isSpelledOtherwise, other.isSpelledOtherwise), strings.Compare(c.name, other.name))
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// shape is a name without its numbers: names of one shape are spelled alike.
func shape(name string) string {
	return strings.Map(func(r rune) rune {
		if isDigit(r) {
			return -1
		}
		return r
	}, name)
}
