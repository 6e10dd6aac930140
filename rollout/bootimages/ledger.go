package bootimages

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// outcome is what came of one resource when it was looked at last.
type outcome struct {
	state    metrics.BootImageState
	reason   string
	message  string
	platform string
	// version of the boot image that it has; empty where it is not known.
	version string
	// since is when it began to fail.
	since time.Time
}

// isTrouble reports whether what should have been done could not be.
func (o outcome) isTrouble() bool {
	return o.state == metrics.BootImageFailed || o.reason == status.ReasonRetrying
}

// ledger has the outcomes of all resources, and the waves of their updates.
type ledger struct {
	mu       sync.Mutex
	outcomes map[id]outcome
	// waves are the moves to boot images, by stream and version.
	waves map[string]*plan.Wave
	// waiting are the resources that wait for the canary of a wave.
	waiting map[string][]id
	// changed tells that an outcome is another one than before.
	changed func()
}

func newLedger() *ledger {
	return &ledger{outcomes: map[id]outcome{}, waves: map[string]*plan.Wave{}, waiting: map[string][]id{}, changed: func() {}}
}

// record takes an outcome down. One that fails as before has been failing since then.
func (l *ledger) record(of id, o outcome) {
	l.mu.Lock()
	before, isKnown := l.outcomes[of]
	if o.state == metrics.BootImageFailed && before.state == o.state {
		o.since = before.since
	}
	l.outcomes[of] = o
	l.mu.Unlock()
	if !isKnown || before != o {
		l.changed()
	}
}

// forget drops a resource that is gone.
func (l *ledger) forget(of id) {
	l.mu.Lock()
	delete(l.outcomes, of)
	l.mu.Unlock()
	l.changed()
}

// of is the last outcome of a resource; the zero one where there is none.
func (l *ledger) of(resource id) outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outcomes[resource]
}

// entry is a resource with its outcome.
type entry struct {
	id id
	outcome
}

// entries are all outcomes, in the order of their names.
func (l *ledger) entries() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]entry, 0, len(l.outcomes))
	for of, o := range l.outcomes {
		out = append(out, entry{of, o})
	}
	slices.SortFunc(out, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.id.kind.name, b.id.kind.name), cmp.Compare(a.id.NamespacedName.String(), b.id.NamespacedName.String()))
	})
	return out
}

// Scrape gives the metrics what came of each resource.
func (l *ledger) Scrape() []metrics.BootImage {
	var out []metrics.BootImage
	for _, e := range l.entries() {
		out = append(out, metrics.BootImage{
			Kind: e.id.kind.name, Namespace: e.id.Namespace, Name: e.id.Name, Platform: e.platform, State: e.state, Reason: e.reason,
		})
	}
	return out
}

// wave names the move to a boot image. Another platform has another image of the same version.
func wave(d *plan.Decision) string { return d.Platform + " " + d.Stream + " " + d.Wanted.Version }

// recordUpdate records that a resource was given a boot image, as its history says. The first one
// is the canary, whichever was elected.
func (l *ledger) recordUpdate(name string, of id, when time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waves[name]
	if w == nil {
		w = &plan.Wave{}
		l.waves[name] = w
	}
	if w.Since.IsZero() || when.Before(w.Since) {
		w.First, w.Since = of.String(), when
	}
}

// hasBegun reports whether a wave has a canary.
func (l *ledger) hasBegun(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waves[name] != nil
}

// elect makes a resource the canary of a wave, unless it has one. It reports whether it has none.
func (l *ledger) elect(name, first string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waves[name] != nil {
		return false
	}
	l.waves[name] = &plan.Wave{First: first}
	return true
}

// admit returns how long a resource waits before its update, and for which one; 0 is now. Of a wave
// without canary it becomes that. Those that wait are noted.
func (l *ledger) admit(name string, of id, now time.Time, soak time.Duration) (first string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waves[name]
	if w == nil {
		w = &plan.Wave{First: of.String()}
		l.waves[name] = w
	}
	wait = w.Wait(of.String(), now, soak)
	if wait > 0 && !slices.Contains(l.waiting[name], of) {
		l.waiting[name] = append(l.waiting[name], of)
	}
	return w.First, wait
}

// isCanary reports whether machines of a resource prove that the boot image of a wave works, and
// since when.
func (l *ledger) isCanary(name string, of id) (since time.Time, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waves[name]
	if w == nil || w.First != of.String() || w.Since.IsZero() || w.IsProven {
		return time.Time{}, false
	}
	return w.Since, true
}

// markProven opens a wave, and returns the resources that waited for it.
func (l *ledger) markProven(name string) []id {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waves[name]; w != nil {
		w.IsProven = true
	}
	waited := l.waiting[name]
	delete(l.waiting, name)
	return waited
}

// resign takes a resource that has not been updated out of the waves that it is the canary of, but
// for the one it still wants, and returns those that waited for it.
func (l *ledger) resign(of id, wanted string) []id {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waited []id
	for name, w := range l.waves {
		if name == wanted || w.First != of.String() || !w.Since.IsZero() {
			continue
		}
		delete(l.waves, name)
		waited = append(waited, l.waiting[name]...)
		delete(l.waiting, name)
	}
	return waited
}
