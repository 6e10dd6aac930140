package pools

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// longestBacklog is how long others wait for pools to be rendered.
const longestBacklog = 10 * time.Second

// Backlog are the pools whose MachineConfigs have changed and that are not rendered yet. Where one
// MachineConfig is of many pools, all of them get their configuration first, and then their images:
// making an image takes much longer. A nil Backlog is none.
type Backlog struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pools map[string]struct{}
	// since is when more came than are rendered at once; zero where there are fewer.
	since time.Time
}

// NewBacklog returns one for Options.
func NewBacklog(c clock.PassiveClock) *Backlog {
	return &Backlog{clock: c, pools: map[string]struct{}{}}
}

// IsLong reports whether other work waits: while there are more pools than are rendered at once,
// and for ten seconds at most.
func (b *Backlog) IsLong() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.since.IsZero() && b.clock.Since(b.since) < longestBacklog
}

func (b *Backlog) add(pool string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pools[pool] = struct{}{}
	if len(b.pools) > maxConcurrent && b.since.IsZero() {
		b.since = b.clock.Now()
	}
}

func (b *Backlog) remove(pool string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, pool)
	if len(b.pools) <= maxConcurrent {
		b.since = time.Time{}
	}
}
