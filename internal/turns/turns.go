package turns

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

const (
	// patience is how long someone waits here: long enough for what is quick, and short enough to
	// keep no one else's work from being done.
	patience = time.Second
	// again is when to ask again.
	again = 2 * time.Second
	// longest is how long a turn lasts for certain, twice as long after one that was too short. It
	// lasts longer where no one else wants one.
	longest = 5 * time.Minute
)

// Turns are given to a few at a time.
type Turns struct {
	most  int
	clock clock.PassiveClock

	mu   sync.Mutex
	held map[string]*turn // by registry
	// waiting are in the order in which they asked.
	waiting []*turn
	// lasts is how long the next turn of an image lasts for certain whose last one was ended: two
	// that need more than longest for one layer would else end each other for ever.
	lasts map[string]time.Duration
}

// turn is one that someone has, or wants.
type turn struct {
	registry, image string
	since           time.Time
	end             context.CancelCauseFunc
	begun           chan struct{}
	ended           bool
}

// New makes turns, of which there are so many at a time.
func New(most int, c clock.PassiveClock) *Turns {
	return &Turns{most: most, clock: c, held: map[string]*turn{}, lasts: map[string]time.Duration{}}
}

// Take gives a turn for an image of a registry: a context that lasts as long, and a function that
// gives the turn back. The error is a [WaitError] where for a while others have all turns, or
// the registry has one.
func (t *Turns) Take(ctx context.Context, registry, image string) (context.Context, func(), error) {
	ctx, end := context.WithCancelCause(ctx)
	mine := &turn{registry: registry, image: image, end: end, begun: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, mine)
	t.grant()
	t.mu.Unlock()

	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-mine.begun:
	case <-short.Done():
		if err := t.leave(ctx, mine); err != nil {
			end(err)
			return nil, nil, err
		}
	}
	return ctx, func() {
		end(nil)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.held, registry)
		if !mine.ended {
			delete(t.lasts, image)
		}
		t.grant()
	}, nil
}

// grant gives turns to those who wait.
func (t *Turns) grant() {
	t.waiting = slices.DeleteFunc(t.waiting, func(next *turn) bool {
		if len(t.held) >= t.most || t.held[next.registry] != nil {
			return false
		}
		next.since = t.clock.Now()
		t.held[next.registry] = next
		close(next.begun)
		return true
	})
}

// leave stops waiting, and says for whom; nil where the turn came at the last moment. Who has one
// for very long goes on at its next turn, so that others get one too.
func (t *Turns) leave(ctx context.Context, mine *turn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[mine.registry] == mine {
		return nil
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(other *turn) bool { return other == mine })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	first := t.held[mine.registry]
	if first == nil {
		first = t.oldest()
	}
	lasts := max(longest, t.lasts[first.image])
	if !first.ended && t.clock.Since(first.since) >= lasts {
		first.ended, t.lasts[first.image] = true, 2*lasts
		first.end(fault.NewWaiting(mcfgv1.ReasonWaitingForTurn, again, fmt.Errorf(
			"image %q took more than %s to read while others waited; it goes on at its next turn", first.image, lasts)))
	}
	return waiting(again, first.image, first.registry)
}

// oldest is the turn that was taken first.
func (t *Turns) oldest() *turn {
	return slices.MinFunc(slices.Collect(maps.Values(t.held)), func(a, b *turn) int { return a.since.Compare(b.since) })
}

// WaitError means that an image is read now which has to be waited for.
type WaitError struct {
	// Image is read now, and Registry is the one that it is read from; empty where it is the very
	// image that is wanted.
	Image, Registry string
}

// Error names them.
func (e *WaitError) Error() string {
	if e.Registry == "" {
		return fmt.Sprintf("it waits until image %q has been read, which is wanted elsewhere too", e.Image)
	}
	return fmt.Sprintf("it waits for the turn of image %q of registry %q, which is read now", e.Image, e.Registry)
}

func waiting(after time.Duration, image, registry string) error {
	return fault.NewWaiting(mcfgv1.ReasonWaitingForTurn, after, &WaitError{Image: image, Registry: registry})
}
