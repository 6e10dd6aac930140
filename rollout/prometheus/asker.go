package prometheus

import (
	"context"
	"errors"
	"fmt"
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

// What is asked and kept at most. Pools have a part each, so that one leaves something to the
// others.
const (
	// atOnce is how many queries are asked at the same time, one of each pool.
	atOnce = 4
	// maxKept is about how much memory the answers to all queries may take, and maxKeptOfPool those
	// to the queries of one pool.
	maxKept       = 32 << 20
	maxKeptOfPool = 8 << 20
)

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
	// bytes is about how much memory it takes.
	bytes int
}

// NewAnswer makes an answer of samples, which belong to nodes by a label, unless that is empty.
func NewAnswer(at time.Time, id, byNode string, samples []Sample) *Answer {
	a := &Answer{At: at, ID: id, byNode: byNode, samples: map[string][]Sample{}}
	for i := range samples {
		node := samples[i].Labels[byNode]
		a.samples[node] = append(a.samples[node], samples[i])
		a.bytes += samples[i].bytes()
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

	// turns has one place for each query that is asked. Reading is held while an answer is read,
	// which takes more memory than the answer.
	turns   chan struct{}
	reading sync.Mutex

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
	return &Asker{server: endpoint.New("Prometheus server", lookup), clock: c, changed: changed, asked: map[string]map[Query]*asked{}, turns: make(chan struct{}, atOnce)}
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
	var due []Query
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
			due = append(due, q)
		}
		if wait = max(wait, time.Second); next == 0 || wait < next {
			next = wait
		}
	}
	if len(due) > 0 {
		go a.ask(context.WithoutCancel(ctx), pool, due)
	}
	return next
}

// ask asks queries of a pool once, one after the other. One that is not wanted any more is not
// asked.
func (a *Asker) ask(ctx context.Context, pool string, queries []Query) {
	for _, q := range queries {
		a.turns <- struct{}{}
		if a.isWanted(pool, q) {
			at := a.clock.Now()
			samples, err := a.samples(ctx, q)
			a.keep(pool, q, NewAnswer(at, "", q.NodeLabel, samples), err)
		}
		<-a.turns
		a.tell(ctx, pool)
	}
}

func (a *Asker) tell(ctx context.Context, pool string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a.changed(ctx, pool)
}

func (a *Asker) isWanted(pool string, q Query) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[pool][q] != nil
}

func (a *Asker) samples(ctx context.Context, q Query) ([]Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := ask(ctx, a.server, q.Secret, q.Text)
	if err != nil {
		return nil, err
	}
	a.reading.Lock()
	defer a.reading.Unlock()
	return parse(answer)
}

// keep remembers an answer, if there is room for it, or why there is none.
func (a *Asker) keep(pool string, q Query, answer *Answer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.asked[pool][q]
	if one == nil {
		return
	}
	if err == nil {
		err = a.room(pool, q, answer.bytes)
	}
	if one.isAsking, one.err = false, err; err == nil {
		a.count++
		answer.ID = strconv.FormatUint(a.count, 10)
		one.answer = answer
	}
}

// room is why there is none for an answer in place of the last one to its query.
func (a *Asker) room(pool string, q Query, bytes int) error {
	all, ofPool := bytes, bytes
	for of, queries := range a.asked {
		for other, one := range queries {
			if one.answer == nil || of == pool && other == q {
				continue
			}
			if all += one.answer.bytes; of == pool {
				ofPool += one.answer.bytes
			}
		}
	}
	switch {
	case ofPool > maxKeptOfPool:
		return fmt.Errorf("the answers to the pool's queries take more than %d MiB of memory together: aggregate in the query", maxKeptOfPool>>20)
	case all > maxKept:
		return fmt.Errorf("the answers to the queries of all pools take more than %d MiB of memory together: aggregate in the queries", maxKept>>20)
	default:
		return nil
	}
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
