package baseimage

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/osindex"
)

const (
	// MaxMemory is how much memory a controller has for indexes, in bytes. One at its limit fits,
	// or any four of operating systems.
	MaxMemory = 96 << 20
	// maxRecent is how much of it those take that no one uses now.
	maxRecent = 32 << 20
	// looks is how often a reader looks for memory that others have given back, once in lookAgain,
	// before it gives up, and oldestLooks how often the oldest one does.
	looks       = 10
	oldestLooks = 120
	lookAgain   = time.Second
)

// errNoMemory is why an image is not indexed now. Like a turn, it is waited for: what others read
// is no failure of this one.
var errNoMemory = fault.NewWaiting(mcfgv1.ReasonWaitingForTurn, lookAgain, errors.New(
	"the indexes of other images take all memory that there is for indexes, so this one is tried again later"))

// budget is the memory of all indexes. What an index has taken is given back when no one holds it
// any more, which the garbage collector finds out: holders need not say it, and can't forget to.
type budget struct {
	limit int

	mu    sync.Mutex
	taken int
	// open are the readers that may take more, the oldest first. It waits longer than the others,
	// so that one of them comes to its end.
	open []*grant
	// freed is closed when something is given back; nil while no one waits for it.
	freed chan struct{}
	// recent are the last indexes that were used, the newest first.
	recent []used
}

// used is an index in memory.
type used struct {
	key   string
	index *osindex.Index
}

// grant is what one reader has taken.
type grant struct {
	*budget

	ctx  context.Context //nolint:containedctx // of the one reading that it is for
	held int
}

func newBudget(limit int) *budget { return &budget{limit: limit} }

// grant begins a reading.
func (b *budget) grant(ctx context.Context) *grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := &grant{budget: b, ctx: ctx}
	b.open = append(b.open, g)
	return g
}

// take takes memory for an index before it is used.
func (g *grant) take(bytes int) error {
	for look := 0; ; look++ {
		freed, isOldest, ok := g.try(bytes)
		switch {
		case ok:
			return nil
		case !isOldest && look >= looks, look >= oldestLooks:
			return errNoMemory
		}
		runtime.GC() // what no one holds is found only by looking for it
		if err := g.wait(freed); err != nil {
			return err
		}
	}
}

// wait ends when something was given back, or when it is time to look for it.
func (g *grant) wait(freed chan struct{}) error {
	short, cancel := context.WithTimeout(g.ctx, lookAgain)
	defer cancel()
	select {
	case <-freed:
	case <-short.Done():
	}
	return context.Cause(g.ctx)
}

// try takes memory, if there is some. What no one uses now makes room.
func (g *grant) try(bytes int) (freed chan struct{}, isOldest, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken+bytes > g.limit {
		clear(g.recent)
		g.recent = nil
		if g.freed == nil {
			g.freed = make(chan struct{})
		}
		return g.freed, g.open[0] == g, false
	}
	g.taken += bytes
	g.held += bytes
	return nil, false, true
}

// end ends a reading. What it has taken beyond its index is given back now, and the rest with the
// index, which may be nil.
func (g *grant) end(key string, index *osindex.Index) {
	keeps := 0
	if index != nil {
		keeps = min(index.Bytes(), g.held)
		runtime.AddCleanup(index, func(bytes int) { g.give(bytes) }, keeps)
	}
	g.give(g.held - keeps)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = slices.DeleteFunc(g.open, func(other *grant) bool { return other == g })
	if index != nil {
		g.remember(key, index)
	}
}

func (b *budget) give(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= bytes
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// known is an index that was used not long ago; nil where it is not in memory.
func (b *budget) known(key string) *osindex.Index {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.recent {
		if r.key == key {
			b.remember(key, r.index)
			return r.index
		}
	}
	return nil
}

// remember keeps an index in memory, and those that were used before it as far as there is room.
func (b *budget) remember(key string, index *osindex.Index) {
	recent, room := []used{{key, index}}, maxRecent-index.Bytes()
	if room < 0 {
		return
	}
	for _, r := range b.recent {
		if room -= r.index.Bytes(); r.key == key || room < 0 {
			room += r.index.Bytes()
			continue
		}
		recent = append(recent, r)
	}
	b.recent = recent
}
