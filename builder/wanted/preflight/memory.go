package preflight

import (
	"context"
	"hash/fnv"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/layerwright/layerwright/internal/turns"
)

// memory remembers good answers for a while. It holds nothing that could not be asked again.
type memory[T any] struct {
	clock clock.PassiveClock
	ttl   time.Duration

	flights turns.Flights
	answers *lru.Cache
}

type answer[T any] struct {
	value T
	until time.Time
}

func newMemory[T any](c clock.PassiveClock, ttl time.Duration, limit int) *memory[T] {
	return &memory[T]{clock: c, ttl: ttl, answers: lru.New(limit)}
}

// question is about an image or a repository, with one set of credentials.
type question struct {
	about, with string
	// fresh asks again, whatever is remembered.
	fresh bool
}

func (q *question) key() string { return q.about + "|" + q.with }

// get gives the remembered answer, or asks. Those who want the same at the same time share one
// question, unless they want a fresh answer. An answer that was given is remembered, an error is
// not, and makes no one forget an answer.
func (m *memory[T]) get(ctx context.Context, q question, ask func() (T, error)) (T, error) {
	key := q.key()
	if q.fresh {
		return m.ask(key, ask)
	}
	if value, ok := m.known(key); ok {
		return value, nil
	}
	return turns.Share(ctx, &m.flights, key, q.about, func() (T, error) {
		if value, ok := m.known(key); ok { // someone has asked in between
			return value, nil
		}
		return m.ask(key, ask)
	})
}

func (m *memory[T]) known(key string) (value T, ok bool) {
	found, _ := m.answers.Get(key)
	known, ok := found.(answer[T])
	return known.value, ok && m.clock.Now().Before(known.until)
}

func (m *memory[T]) ask(key string, ask func() (T, error)) (T, error) {
	value, err := ask()
	if err == nil {
		m.answers.Add(key, answer[T]{value, m.clock.Now().Add(m.ttlOf(key))})
	}
	return value, err
}

// ttlOf differs from key to key by up to a fifth, so that what was asked for together is not asked
// for again together.
func (m *memory[T]) ttlOf(key string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key))
	const parts = 100
	return m.ttl - m.ttl/5*time.Duration(hash.Sum32()%parts)/parts
}
