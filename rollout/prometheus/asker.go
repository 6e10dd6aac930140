package prometheus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

// Interval is the time between one query and the next. Prometheus has new samples about as often:
// more queries would get the same answers.
const Interval = 30 * time.Second

// lasts is how long an answer is good while the server does not answer again: a query that failed
// by chance does not end a soak time.
const lasts = 4 * Interval

// errNone is why there is no answer at first.
var errNone = errors.New("prometheus has not answered yet")

// Query is what is asked.
type Query struct {
	// Secret has the address.
	Secret string
	// Text is the query in PromQL.
	Text string
	// NodeLabel is the label by which samples belong to nodes; empty where they do not.
	NodeLabel string
}

// Answer is what a server answered.
type Answer struct {
	// At is when it was asked.
	At time.Time
	// ID differs for each answer.
	ID string

	byNode  string
	samples map[string][]Sample
}

// NewAnswer makes an answer of samples, which belong to nodes by a label, unless that is empty.
func NewAnswer(at time.Time, id, byNode string, samples []Sample) *Answer {
	a := &Answer{At: at, ID: id, byNode: byNode, samples: map[string][]Sample{}}
	for i := range samples {
		node := samples[i].Labels[byNode]
		a.samples[node] = append(a.samples[node], samples[i])
	}
	return a
}

// Of are the samples of a node, or all where they belong to none.
func (a *Answer) Of(node string) []Sample {
	if a.byNode == "" {
		node = ""
	}
	return a.samples[node]
}

// Text is a few samples in words.
func Text(samples []Sample) string {
	const most = 3
	if len(samples) == 0 {
		return "no sample"
	}
	var list []string
	for i := range samples[:min(most, len(samples))] {
		list = append(list, samples[i].String())
	}
	if more := len(samples) - most; more > 0 {
		list = append(list, strconv.Itoa(more)+" more")
	}
	return strings.Join(list, ", ")
}

// Asker asks the queries that pools want.
type Asker struct {
	server *endpoint.Client
	clock  clock.PassiveClock
	// changed is called with the name of a pool when there is an answer for it, or none.
	changed func(ctx context.Context, pool string)

	mu    sync.Mutex
	asked map[string]map[Query]*asked
	count uint64
}

// asked is a query, and what is known of it.
type asked struct {
	at       time.Time
	isAsking bool
	answer   *Answer
	err      error
}

// New makes an Asker that has asked nothing. changed may block until its context ends.
func New(lookup endpoint.Lookup, c clock.PassiveClock, changed func(ctx context.Context, pool string)) *Asker {
	return &Asker{server: endpoint.New("Prometheus server", lookup), clock: c, changed: changed, asked: map[string]map[Query]*asked{}}
}

// Want has the queries of a pool asked, and forgets its others. Those that were answered are asked
// again only where their answers are to be followed. It returns after which time it has to be
// called again; zero where that is not needed. It never blocks.
func (a *Asker) Want(ctx context.Context, pool string, isFollowed bool, queries ...Query) (next time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.asked[pool]
	maps.DeleteFunc(of, func(q Query, _ *asked) bool { return !slices.Contains(queries, q) })
	if len(queries) == 0 {
		delete(a.asked, pool)
		return 0
	}
	if of == nil {
		of = map[Query]*asked{}
		a.asked[pool] = of
	}
	now := a.clock.Now()
	for _, q := range queries {
		if of[q] == nil {
			of[q] = &asked{}
		}
		one := of[q]
		if !isFollowed && one.answer != nil && one.err == nil {
			continue
		}
		wait := one.at.Add(Interval).Sub(now)
		if !one.isAsking && (wait <= 0 || wait > Interval) { // or the clock was set back
			one.at, one.isAsking, wait = now, true, Interval
			go a.ask(context.WithoutCancel(ctx), pool, q, one)
		}
		if wait = max(wait, time.Second); next == 0 || wait < next {
			next = wait
		}
	}
	return next
}

// ask asks a query once.
func (a *Asker) ask(ctx context.Context, pool string, q Query, one *asked) {
	at := a.clock.Now()
	samples, err := a.samples(ctx, q)
	a.mu.Lock()
	if one.isAsking, one.err = false, err; err == nil {
		a.count++
		one.answer = NewAnswer(at, strconv.FormatUint(a.count, 10), q.NodeLabel, samples)
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a.changed(ctx, pool)
}

func (a *Asker) samples(ctx context.Context, q Query) ([]Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ask(ctx, a.server, q.Secret, q.Text)
}

// Answer is the last answer to a query of a pool, or why there is none.
func (a *Asker) Answer(pool string, q Query) (*Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.asked[pool][q]
	switch {
	case one == nil || one.answer == nil && one.err == nil:
		return nil, errNone
	case one.err != nil && (one.answer == nil || a.clock.Since(one.answer.At) >= lasts):
		return nil, one.err
	default:
		return one.answer, nil
	}
}
