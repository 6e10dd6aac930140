package runs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// reservationTimeout is how long a build keeps its place without asking again.
const reservationTimeout = 10 * time.Second

// SlotInterval is when a build looks again that waits for a slot, or for its predecessor to stop.
const SlotInterval = 200 * time.Millisecond

// Queued is when to look again at a place in the queue.
const Queued = 2 * time.Second

// Runs are the builds that this process works on, at most one per MachineOSConfig, and those that
// wait for a slot. It only orders them: after a restart it is empty.
type Runs struct {
	limit int

	mu      sync.Mutex
	running map[string]*run // by MachineOSConfig
	// admitted are builds that have a slot and do not run yet, with when they got it.
	admitted map[string]time.Time
	// waiting are in the order in which they asked first.
	waiting []waiter
}

type waiter struct {
	build string
	asked time.Time // last
}

type run struct {
	build  string
	cancel context.CancelFunc
}

// New makes Runs of which as many begin as the limit allows.
func New(limit int) *Runs {
	return &Runs{limit: limit, running: map[string]*run{}, admitted: map[string]time.Time{}}
}

// Admit reports whether a build may begin: a slot is free, and no other build has waited longer. A
// build that is not admitted keeps its place by asking again.
func (r *Runs) Admit(build string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.admitted, func(_ string, since time.Time) bool { return now.Sub(since) > reservationTimeout })
	r.waiting = slices.DeleteFunc(r.waiting, func(w waiter) bool { return w.build != build && now.Sub(w.asked) > reservationTimeout })
	if _, is := r.admitted[build]; is {
		return true
	}
	place := slices.IndexFunc(r.waiting, func(w waiter) bool { return w.build == build })
	if place < 0 {
		place = len(r.waiting)
		r.waiting = append(r.waiting, waiter{build: build})
	}
	r.waiting[place].asked = now
	if place >= r.limit-len(r.running)-len(r.admitted) {
		return false
	}
	r.waiting = slices.Delete(r.waiting, place, place+1)
	r.admitted[build] = now
	return true
}

// Begin starts a run, unless another build of the MachineOSConfig runs. Its context ends when
// someone stops it; call end when it is over.
func (r *Runs) Begin(ctx context.Context, config, build string) (running context.Context, end func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[config] != nil {
		return ctx, func() {}, false
	}
	delete(r.admitted, build)
	ctx, cancel := context.WithCancel(ctx)
	r.running[config] = &run{build: build, cancel: cancel}
	return ctx, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, config)
	}, true
}

// Stop ends the run of a build, and reports whether there is one. It does not wait for the end.
func (r *Runs) Stop(config, build string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := r.running[config]
	if running == nil || running.build != build {
		return false
	}
	running.cancel()
	return true
}

// Names are the builds that run.
func (r *Runs) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.running))
	for _, running := range r.running {
		names = append(names, running.build)
	}
	return names
}
