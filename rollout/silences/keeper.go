package silences

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

const (
	// renewal is after which time a silence is renewed, and pause after which an Alertmanager is
	// asked again that did not do what it should.
	renewal = lease / 2
	pause   = 30 * time.Second
	// turn is how long the silences of one pool may keep those of others waiting.
	turn = time.Minute
)

// wanted is what a pool wants silenced.
type wanted struct {
	secret, label string
	nodes         []string
}

// Keeper keeps silences for pools.
type Keeper struct {
	alerts *alertmanager
	clock  clock.Clock
	// changed means that a pool wants something else.
	changed chan struct{}
	mu      sync.Mutex
	pools   map[string]*pool // with mu
}

// pool is what is wanted and done for one pool.
type pool struct {
	wanted  wanted                    // with the Keeper's mu
	failed  func(error)               // with it too
	held    map[silenceTarget]holding // of Start alone, as all below
	failure string
	retry   time.Time
}

// holding is a silence that was made.
type holding struct{ renew, ends time.Time }

// New makes a Keeper, which keeps silences while it runs. Addresses are in Secrets of the
// namespace.
func New(reader client.Reader, namespace string) *Keeper {
	return newKeeper(endpoint.Secrets(reader, namespace))
}

func newKeeper(lookup endpoint.Lookup) *Keeper {
	wall := clock.RealClock{}
	return &Keeper{
		alerts: &alertmanager{client: endpoint.New("Alertmanager", lookup), clock: wall}, clock: wall,
		changed: make(chan struct{}, 1), pools: map[string]*pool{},
	}
}

// Want says of which nodes a pool wants alerts silenced from now on, and never blocks. The Secret
// has the address of the Alertmanager, and is empty for none; label is the one by which alerts name
// their node. failed is called by another goroutine when that can't be done for another reason than
// before.
func (k *Keeper) Want(name, secret, label string, nodes []string, failed func(error)) {
	var w wanted
	if secret != "" && len(nodes) > 0 {
		w = wanted{secret, label, nodes}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pools[name]
	if p == nil {
		if len(w.nodes) == 0 {
			return
		}
		p = &pool{held: map[silenceTarget]holding{}}
		k.pools[name] = p
	}
	p.failed = failed
	if reflect.DeepEqual(p.wanted, w) {
		return
	}
	w.nodes = slices.Clone(nodes)
	p.wanted = w
	select {
	case k.changed <- struct{}{}:
	default: // it looks anyway
	}
}

// Start keeps silences until the context ends. Those that are there then end by themselves, or are
// renewed by the next process.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		timer := k.clock.NewTimer(k.reconcile(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-k.changed:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// reconcile does what is due, and returns after which time something else is.
func (k *Keeper) reconcile(ctx context.Context) time.Duration {
	k.mu.Lock()
	names := slices.Sorted(maps.Keys(k.pools))
	k.mu.Unlock()
	after := renewal
	for _, name := range names {
		k.mu.Lock()
		p := k.pools[name]
		want, failed := p.wanted, p.failed
		k.mu.Unlock()
		if !k.clock.Now().Before(p.retry) {
			k.try(ctx, p, silenceTargets(name, &want), failed)
		}
		if next, some := p.next(); some {
			after = min(after, max(next.Sub(k.clock.Now()), 0))
		}
		k.forget(name)
	}
	return after
}

// forget drops a pool for which nothing is left to do.
func (k *Keeper) forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pools[name]; len(p.held) == 0 && len(p.wanted.nodes) == 0 {
		delete(k.pools, name)
	}
}

// silenceTargets are those that a pool wants.
func silenceTargets(pool string, w *wanted) []silenceTarget {
	out := make([]silenceTarget, len(w.nodes))
	for i, node := range w.nodes {
		out[i] = silenceTarget{w.secret, w.label, pool, node}
	}
	return out
}

// try does what is due for a pool. It ends with the first request that fails: with an Alertmanager
// that does not answer, all others would.
func (k *Keeper) try(ctx context.Context, p *pool, want []silenceTarget, failed func(error)) {
	err := k.converge(ctx, p, want)
	p.retry = time.Time{}
	if ctx.Err() != nil || err == nil {
		p.failure = ""
		return
	}
	p.retry = k.clock.Now().Add(pause)
	if text := err.Error(); text != p.failure {
		p.failure = text
		failed(err)
	}
}

// converge ends what is not wanted any more, and then makes and renews what is. It goes on with the
// second where the first fails: an end that is missed comes by itself.
func (k *Keeper) converge(ctx context.Context, p *pool, want []silenceTarget) error {
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	is := sets.New(want...)
	var err error
	for l, held := range p.held {
		if err != nil || is.Has(l) {
			continue
		}
		if k.clock.Now().Before(held.ends) { // else it has ended by itself
			err = k.alerts.end(ctx, &l)
		}
		if err == nil {
			delete(p.held, l)
		}
	}
	return cmp.Or(k.keep(ctx, p, want), err)
}

func (k *Keeper) keep(ctx context.Context, p *pool, want []silenceTarget) error {
	for i := range want {
		l := &want[i]
		now := k.clock.Now()
		if held, is := p.held[*l]; is && now.Before(held.renew) {
			continue
		}
		if err := k.alerts.keep(ctx, l); err != nil {
			return err
		}
		p.held[*l] = holding{now.Add(renewal), now.Add(lease)}
	}
	return nil
}

// next is when something is due for a pool.
func (p *pool) next() (time.Time, bool) {
	if !p.retry.IsZero() {
		return p.retry, true
	}
	var next time.Time
	for _, held := range p.held {
		if next.IsZero() || held.renew.Before(next) {
			next = held.renew
		}
	}
	return next, !next.IsZero()
}
